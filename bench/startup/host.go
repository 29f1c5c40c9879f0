// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// order is what the machine asks of a host; one of the fields is set.
type order struct {
	Setup *setup `json:"setup,omitempty"`
	// Write is contents of files, by path.
	Write map[string]string `json:"write,omitempty"`
	Serve *serve            `json:"serve,omitempty"`
	Run   *task             `json:"run,omitempty"`
	// Clear ends all processes of the host.
	Clear bool `json:"clear,omitempty"`
}

type setup struct {
	Name    string `json:"name"`
	Root    string `json:"root"`
	Scratch string `json:"scratch"`
	Network string `json:"network"`
}

// serve starts a server and waits until it listens.
type serve struct {
	Command []string `json:"command"`
	Port    int      `json:"port"`
}

// task is commands to run and measure: the steps one after another, the commands
// of a step at a time.
type task struct {
	Steps       [][][]string  `json:"steps"`
	Environment []string      `json:"environment"`
	Timeout     time.Duration `json:"timeout"`
}

type answer struct {
	Error  string    `json:"error,omitempty"`
	Began  time.Time `json:"began"`
	Ended  time.Time `json:"ended"`
	Output string    `json:"output,omitempty"`
}

// runHost is process 1 of a host, which ends with it, and it ends with the machine.
func runHost(orders io.Reader, answers io.Writer) error {
	if os.Getpid() != 1 {
		return errors.New("a host is made by the machine; run the program without a name of its own")
	}
	// The environment is an image's, whatever this machine has.
	os.Clearenv()
	for name, value := range map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	decoder, encoder := json.NewDecoder(orders), json.NewEncoder(answers)
	for {
		var order order
		if err := decoder.Decode(&order); err != nil {
			return nil // The machine is gone.
		}
		answer, err := order.follow()
		if err != nil {
			answer.Error = err.Error()
		}
		if err := encoder.Encode(answer); err != nil {
			return nil
		}
	}
}

func (order order) follow() (answer, error) {
	switch {
	case order.Setup != nil:
		return answer{}, order.Setup.make()
	case order.Write != nil:
		return answer{}, writeAll(order.Write)
	case order.Serve != nil:
		return answer{}, order.Serve.start()
	case order.Run != nil:
		return order.Run.run()
	case order.Clear:
		return answer{}, endAll()
	default:
		return answer{}, errors.New("an empty order")
	}
}

func (setup *setup) make() error {
	if err := ip(setup.Network); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(setup.Name)); err != nil {
		return err
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	root, err := setup.mountRoot()
	if err != nil {
		return err
	}
	if err := syscall.Chroot(root); err != nil {
		return err
	}
	return os.Chdir("/")
}

// mountRoot makes the file system of a container: a layer of its own on the
// image, and what every engine mounts.
func (setup *setup) mountRoot() (string, error) {
	upper, work, root := filepath.Join(setup.Scratch, "upper"), filepath.Join(setup.Scratch, "work"), filepath.Join(setup.Scratch, "root")
	for _, directory := range []string{upper, work, root} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return "", err
		}
	}
	layers := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", setup.Root, upper, work)
	for _, mount := range []struct{ kind, path, options string }{
		{"overlay", "", layers}, {"proc", "proc", ""}, {"tmpfs", "dev", "mode=0755"}, {"tmpfs", "dev/shm", "mode=1777"},
		{"devpts", "dev/pts", "newinstance,ptmxmode=0666"}, {"tmpfs", "tmp", "mode=1777"}, {"tmpfs", "run", "mode=0755"}, {"tmpfs", "run/sshd", "mode=0755"},
	} {
		path := filepath.Join(root, mount.path)
		if err := os.MkdirAll(path, 0o755); err != nil {
			return "", err
		}
		if err := syscall.Mount(mount.kind, path, mount.kind, 0, mount.options); err != nil {
			return "", fmt.Errorf("mount %s on /%s: %w", mount.kind, mount.path, err)
		}
	}
	for _, device := range []string{"null", "zero", "random", "urandom"} {
		path := filepath.Join(root, "dev", device)
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			return "", err
		}
		if err := syscall.Mount("/dev/"+device, path, "", syscall.MS_BIND, ""); err != nil {
			return "", fmt.Errorf("mount /dev/%s: %w", device, err)
		}
	}
	return root, nil
}

func writeAll(files map[string]string) error {
	for path, text := range files {
		if err := writeFile("/", path, 0o644, []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

const (
	serverLog    = "/tmp/server.log"
	startTimeout = time.Minute
)

func (serve *serve) start() error {
	log, err := os.Create(serverLog)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(serve.Command[0], serve.Command[1:]...)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return err
	}
	// Whoever ends everything collects it.
	if err := command.Process.Release(); err != nil {
		return err
	}
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if listens(serve.Port) {
			return nil
		}
	}
	text, _ := os.ReadFile(serverLog)
	return fmt.Errorf("%s does not listen on port %d after %s: %s", serve.Command[0], serve.Port, startTimeout, text)
}

// listens looks without knocking: sshd starts a process for every knock.
func listens(port int) bool {
	return listensIn("/proc/net/tcp", port) || listensIn("/proc/net/tcp6", port)
}

// listensIn reads no further than it must: the kernel lists listeners first, and
// takes long to look for connections.
func listensIn(table string, port int) bool {
	const listening = "0A"
	file, err := os.Open(table)
	if err != nil {
		return false
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 3 && fields[3] == listening && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) {
			return true
		}
	}
	return false
}

// run measures from before the first command starts until the last has ended.
func (task *task) run() (answer, error) {
	timer := time.AfterFunc(task.Timeout, func() { _ = syscall.Kill(-1, syscall.SIGKILL) })
	defer timer.Stop()
	answer := answer{Began: time.Now()}
	for _, step := range task.Steps {
		outputs, failures := make([]string, len(step)), make([]error, len(step))
		var all sync.WaitGroup
		for i, arguments := range step {
			all.Go(func() { outputs[i], failures[i] = runOne(arguments, task.Environment) })
		}
		all.Wait()
		answer.Ended = time.Now()
		answer.Output += strings.Join(outputs, "")
		if err := errors.Join(failures...); err != nil {
			if time.Since(answer.Began) >= task.Timeout {
				err = fmt.Errorf("it took longer than %s (see -timeout)", task.Timeout)
			}
			return answer, fmt.Errorf("%w\n%s", err, tail(answer.Output, 2000))
		}
	}
	return answer, nil
}

// runOne writes to a file, so that nothing of ours stands in the way.
func runOne(arguments, environment []string) (string, error) {
	file, err := os.CreateTemp("", "trbench-")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	command := exec.Command(arguments[0], arguments[1:]...)
	command.Env = append(os.Environ(), environment...)
	command.Stdout, command.Stderr = file, file
	if err := command.Run(); err != nil {
		err = fmt.Errorf("%s: %w", arguments[0], err)
		text, _ := os.ReadFile(file.Name())
		return string(text), err
	}
	text, err := os.ReadFile(file.Name())
	return string(text), err
}

func tail(text string, most int) string { return text[max(0, len(text)-most):] }

// endAll ends every process of the host but this one, which is process 1 of its
// namespace.
func endAll() error {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		_ = syscall.Kill(-1, syscall.SIGKILL) // An error says that nobody is left.
		for {
			id, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if errors.Is(err, syscall.ECHILD) {
				return nil
			}
			if err != nil || id == 0 {
				break
			}
		}
	}
	return errors.New("processes do not end after 30 s")
}
