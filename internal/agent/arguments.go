package agent

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// call is what mpirun, or a person, asks ssh to do.
type call struct {
	host    string
	user    string
	port    int
	command string
}

// Options of OpenSSH's client that have a value. Those without are ignored, as
// are these, except for the user and the port.
const optionsWithValue = "BbcDEeFIiJLlmOopPQRSWw"

// parseCall reads the arguments of ssh in all the forms that Open MPI's, Intel's
// and MPICH's launchers, and horovodrun, use:
//
//	HOST COMMAND...
//	-x HOST COMMAND...
//	-o Option=value -l user HOST -p 2222 COMMAND...
//	user@HOST COMMAND...
func parseCall(arguments []string) (*call, error) {
	call := &call{}
	for len(arguments) > 0 {
		argument := arguments[0]
		switch {
		case argument == "--":
			arguments = arguments[1:]
			if call.host == "" && len(arguments) > 0 {
				call.setHost(arguments[0])
				arguments = arguments[1:]
			}
			return call.finish(arguments)
		case strings.HasPrefix(argument, "-") && len(argument) > 1:
			rest, err := call.option(argument[1:], arguments[1:])
			if err != nil {
				return nil, err
			}
			arguments = rest
		case call.host == "":
			call.setHost(argument)
			arguments = arguments[1:]
		default:
			return call.finish(arguments)
		}
	}
	return call.finish(nil)
}

// option reads one argument of options, such as xp2222, and the value that may
// follow it.
func (call *call) option(letters string, following []string) ([]string, error) {
	for i, letter := range letters {
		if !strings.ContainsRune(optionsWithValue, letter) {
			continue
		}
		value := letters[i+1:]
		if value == "" {
			if len(following) == 0 {
				return nil, fmt.Errorf("option -%c needs a value", letter)
			}
			value, following = following[0], following[1:]
		}
		return following, call.set(letter, value)
	}
	return following, nil
}

func (call *call) set(letter rune, value string) error {
	switch letter {
	case 'l':
		call.user = value
	case 'p':
		return call.setPort(value)
	case 'o':
		name, setting, found := strings.Cut(value, "=")
		if !found {
			name, setting, _ = strings.Cut(value, " ")
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "port":
			return call.setPort(strings.TrimSpace(setting))
		case "user":
			call.user = strings.TrimSpace(setting)
		}
	}
	return nil
}

func (call *call) setPort(value string) error {
	port, err := strconv.Atoi(value)
	if err != nil || port < 1 || port > 65535 {
		return fmt.Errorf("%q is not a port", value)
	}
	call.port = port
	return nil
}

func (call *call) setHost(argument string) {
	if user, host, found := strings.Cut(argument, "@"); found {
		call.user, argument = user, host
	}
	call.host = argument
}

func (call *call) finish(command []string) (*call, error) {
	if call.host == "" {
		return nil, errors.New("no host to connect to")
	}
	// As ssh does it: the shell at the other end takes the line apart again.
	call.command = strings.Join(command, " ")
	return call, nil
}
