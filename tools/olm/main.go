// SPDX-License-Identifier: Apache-2.0

// olm writes the bundle and the catalog for the Operator Lifecycle Manager from the
// manifests that the chart renders, so that there is no second copy of them. ADR 15
// describes what is where, and why.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	log.SetFlags(0)
	var s source
	var version, image, output string
	flag.StringVar(&s.manifests, "manifests", "", "file with the rendered chart")
	flag.StringVar(&s.repository, "repository", ".", "root of the repository, with CRDs and samples")
	flag.StringVar(&version, "version", "", "version of the release, such as v0.1.0")
	flag.StringVar(&image, "image", "", "image of the bundle, which the catalog refers to")
	flag.StringVar(&output, "output", "dist", "directory for bundle/, catalog/ and olm-objects.yaml")
	flag.Parse()
	rendered, err := s.read()
	if err != nil {
		log.Fatal(err)
	}
	b, err := newBundle(rendered, strings.TrimPrefix(version, "v"))
	if err != nil {
		log.Fatal(err)
	}
	if err := writeFiles(output, b.files(image)); err != nil {
		log.Fatal(err)
	}
}

// writeFiles writes files by their path below a directory. Those of an earlier run are
// deleted, because OLM reads every file of a bundle.
func writeFiles(directory string, files map[string][]byte) error {
	for _, old := range []string{"bundle", "catalog"} {
		if err := os.RemoveAll(filepath.Join(directory, old)); err != nil {
			return err
		}
	}
	for name, content := range files {
		path := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// documents returns objects as one YAML file.
func documents(objects ...any) []byte {
	var text strings.Builder
	for i, o := range objects {
		if i > 0 {
			text.WriteString("---\n")
		}
		content, err := yaml.Marshal(o)
		if err != nil {
			panic(fmt.Sprintf("an object that was read from YAML cannot be written: %v", err))
		}
		text.Write(content)
	}
	return []byte(text.String())
}
