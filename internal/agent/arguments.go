// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// call is an invocation of ssh by mpirun or a user.
type call struct {
	host    string
	user    string
	port    int
	command string
}

// optionsWithValue are the options of OpenSSH's client that have a value. All options are
// ignored, except for the user and the port.
const optionsWithValue = "BbcDEeFIiJLlmOopPQRSWw"

// parseCall reads the arguments of ssh in all forms that Open MPI, Intel MPI, MPICH and
// horovodrun use:
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

// option reads one argument with options, such as xp2222, and a value that may follow it.
func (c *call) option(letters string, following []string) ([]string, error) {
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
		return following, c.set(letter, value)
	}
	return following, nil
}

func (c *call) set(letter rune, value string) error {
	switch letter {
	case 'l':
		c.user = value
	case 'p':
		return c.setPort(value)
	case 'o':
		name, setting, found := strings.Cut(value, "=")
		if !found {
			name, setting, _ = strings.Cut(value, " ")
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "port":
			return c.setPort(strings.TrimSpace(setting))
		case "user":
			c.user = strings.TrimSpace(setting)
		}
	}
	return nil
}

func (c *call) setPort(value string) error {
	port, err := strconv.Atoi(value)
	if err != nil || port < 1 || port > 65535 {
		return fmt.Errorf("%q is not a port", value)
	}
	c.port = port
	return nil
}

func (c *call) setHost(argument string) {
	if user, host, found := strings.Cut(argument, "@"); found {
		c.user, argument = user, host
	}
	c.host = argument
}

func (c *call) finish(command []string) (*call, error) {
	if c.host == "" {
		return nil, errors.New("no host to connect to")
	}
	// As ssh does: the remote shell splits the line again.
	c.command = strings.Join(command, " ")
	return c, nil
}
