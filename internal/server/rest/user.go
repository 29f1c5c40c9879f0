// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"slices"

	"github.com/trireme-mpi/trireme/internal/server/auth"
)

// user is the caller of a request. The dashboard asks for it to find out whether a proxy has
// authenticated the user.
type user struct {
	Name   string   `json:"name"`
	Groups []string `json:"groups"`
}

func (a *API) user(in *input) (any, error) {
	caller := auth.CallerFrom(in.context())
	return user{Name: caller.User, Groups: append([]string{}, slices.Sorted(slices.Values(caller.Groups))...)}, nil
}
