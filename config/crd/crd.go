// SPDX-License-Identifier: Apache-2.0

// Package crd is the definitions of the job APIs, for programs that describe them.
package crd

import (
	"embed"
	"io/fs"
)

//go:embed *.yaml
var files embed.FS

// All are the definitions, one document each.
func All() (documents [][]byte) {
	names, err := fs.Glob(files, "kubeflow.org_*.yaml")
	if err != nil {
		panic(err) // a constant
	}
	for _, name := range names {
		content, err := files.ReadFile(name)
		if err != nil {
			panic(err) // it was embedded
		}
		documents = append(documents, content)
	}
	return documents
}
