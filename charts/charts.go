// SPDX-License-Identifier: Apache-2.0

// Package charts has the definitions of the job APIs, as the chart installs them.
package charts

import (
	"embed"
	"io/fs"
)

//go:embed trireme/crds/*.yaml
var files embed.FS

// CRDs returns the definitions of the job APIs, one YAML document each.
func CRDs() (documents [][]byte) {
	names, err := fs.Glob(files, "trireme/crds/*.yaml")
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
