// SPDX-License-Identifier: Apache-2.0

// Command runc-with-host-files runs runc. Into containers of images that were made by
// `cluster image from-host`, it mounts directories of the machine, read-only. Only root
// can change which images these are, and which directories.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// record is the file in the image store with the images and their directories.
type record struct {
	Runc   string              `json:"runc"`
	Images map[string][]string `json:"images"`
}

// imageAnnotation is containerd's annotation with the name of a container's image.
const imageAnnotation = "io.kubernetes.cri.image-name"

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "runc-with-host-files:", err)
		os.Exit(1)
	}
}

// run does not return if it succeeds. Its own path, DATA/bin/NAME, leads to the record.
func run(arguments []string) error {
	file := filepath.Join(filepath.Dir(filepath.Dir(arguments[0])), "containerd", "host-files.json")
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var known record
	if err := json.Unmarshal(content, &known); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if bundle := bundleOf(arguments[1:]); bundle != "" {
		if err := addMounts(filepath.Join(bundle, "config.json"), known.Images); err != nil {
			return err
		}
	}
	return syscall.Exec(known.Runc, append([]string{known.Runc}, arguments[1:]...), os.Environ())
}

// bundleOf is the directory of the container that is created; empty for other commands.
func bundleOf(arguments []string) string {
	at := slices.Index(arguments, "--bundle")
	if !slices.Contains(arguments, "create") || at < 0 || at+1 == len(arguments) {
		return ""
	}
	return arguments[at+1]
}

// addMounts adds the directories of the container's image to its configuration.
func addMounts(file string, images map[string][]string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed, err := withMounts(content, images)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if changed == nil {
		return nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return replace(file, changed, info.Mode().Perm())
}

// withMounts returns the changed configuration, or nil if nothing has to change. Fields
// that this program does not know stay as they are.
func withMounts(content []byte, images map[string][]string) ([]byte, error) {
	var config map[string]json.RawMessage
	if err := json.Unmarshal(content, &config); err != nil {
		return nil, err
	}
	var annotations map[string]string
	if raw, found := config["annotations"]; found {
		if err := json.Unmarshal(raw, &annotations); err != nil {
			return nil, err
		}
	}
	directories := images[annotations[imageAnnotation]]
	if len(directories) == 0 {
		return nil, nil
	}
	var mounts []json.RawMessage
	if raw, found := config["mounts"]; found {
		if err := json.Unmarshal(raw, &mounts); err != nil {
			return nil, err
		}
	}
	// First, so that volumes and the driver's libraries can be mounted below them.
	added := make([]json.RawMessage, 0, len(directories)+len(mounts))
	for _, directory := range directories {
		mount, err := json.Marshal(mount{
			Destination: directory, Type: "bind", Source: directory,
			Options: []string{"rbind", "rro", "nosuid", "nodev", "rprivate"},
		})
		if err != nil {
			return nil, err
		}
		added = append(added, mount)
	}
	all, err := json.Marshal(append(added, mounts...))
	if err != nil {
		return nil, err
	}
	config["mounts"] = all
	if err := dropDriverHooks(config); err != nil {
		return nil, err
	}
	return json.Marshal(config)
}

// driverHook is NVIDIA's program that links the driver's libraries into a container. In
// the directories of the machine they are in place, and nothing can be written there.
const driverHook = "nvidia-cdi-hook"

// dropDriverHooks removes the hooks of a GPU, and keeps all others.
func dropDriverHooks(config map[string]json.RawMessage) error {
	raw, found := config["hooks"]
	if !found {
		return nil
	}
	var hooks map[string][]json.RawMessage
	if err := json.Unmarshal(raw, &hooks); err != nil {
		return err
	}
	for stage, all := range hooks {
		hooks[stage] = slices.DeleteFunc(all, func(raw json.RawMessage) bool {
			var hook struct {
				Path string `json:"path"`
			}
			return json.Unmarshal(raw, &hook) == nil && filepath.Base(hook.Path) == driverHook
		})
	}
	changed, err := json.Marshal(hooks)
	config["hooks"] = changed
	return err
}

// mount is one of the runtime specification.
type mount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options"`
}

// replace writes a new file and renames it: containerd or runc must never read half of it.
func replace(file string, content []byte, mode fs.FileMode) error {
	partial := file + ".new"
	if err := os.WriteFile(partial, content, mode); err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	return os.Rename(partial, file)
}
