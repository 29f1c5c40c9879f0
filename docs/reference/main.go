// SPDX-License-Identifier: Apache-2.0

// Command reference writes the reference pages beside it: api.md from the CRDs, rest.md
// from the server's OpenAPI document, metrics.md from the metrics that the programs
// register. make generate runs it in the root of the repository.
package main

import (
	"bytes"
	"embed"
	"log"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

//go:embed *.tmpl
var templates embed.FS

func main() {
	log.SetFlags(0)
	kinds, err := readKinds()
	if err != nil {
		log.Fatal(err)
	}
	rest, err := readREST()
	if err != nil {
		log.Fatal(err)
	}
	metrics, err := readMetrics()
	if err != nil {
		log.Fatal(err)
	}
	for name, data := range map[string]any{"api.md": kinds, "rest.md": rest, "metrics.md": metrics} {
		page, err := render(name, data)
		if err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join("docs/reference", name), page, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// render fills the template of a page.
func render(name string, data any) ([]byte, error) {
	page, err := template.New(name+".tmpl").Funcs(template.FuncMap{"cell": cell, "codes": codes, "join": strings.Join, "lower": strings.ToLower}).ParseFS(templates, name+".tmpl")
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = page.Execute(&out, data)
	return out.Bytes(), err
}

// cell fits a text into one cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// codes writes values in code font: `a`, `b`.
func codes(values []string) string {
	return "`" + strings.Join(values, "`, `") + "`"
}
