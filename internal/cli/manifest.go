// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/training"
)

// maxManifest is more than the API server accepts for one object.
const maxManifest = 16 << 20

// readFile reads a file, or standard input if the name is "-".
func (e *environment) readFile(name string) ([]byte, error) {
	if name == "-" {
		return readAtMost(e.In, "standard input")
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, inputFailure(fmt.Sprintf("cannot read %s", name), plainError(err))
	}
	defer file.Close()
	return readAtMost(file, name)
}

// plainError returns an error without the path, which the message already contains.
func plainError(err error) string {
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		return pathError.Err.Error()
	}
	return err.Error()
}

func readAtMost(from io.Reader, name string) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(from, maxManifest+1))
	if err != nil {
		return nil, inputFailure("cannot read "+name, plainError(err))
	}
	if len(content) > maxManifest {
		return nil, inputFailure(fmt.Sprintf("%s is larger than %d MiB; no cluster accepts a job of that size", name, maxManifest>>20))
	}
	return content, nil
}

// readDocuments reads the objects of a file, and returns its name for messages.
func (e *environment) readDocuments(file string) (docs [][]byte, name string, err error) {
	content, err := e.readFile(file)
	if err != nil {
		return nil, "", err
	}
	name = fileName(file)
	docs, err = documents(content, name)
	return docs, name, err
}

// fileName returns the name of a file for messages.
func fileName(file string) string {
	if file == "-" {
		return "standard input"
	}
	return file
}

// documents returns the objects of a file as JSON. Invalid YAML and duplicate keys are
// errors.
func documents(content []byte, name string) (docs [][]byte, err error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, inputFailure(name+" is not YAML", err.Error())
		}
		asJSON, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			return nil, inputFailure(name+" is not YAML", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if string(asJSON) != "null" {
			docs = append(docs, asJSON)
		}
	}
}

// manifest returns the only job of a file. It checks the fields, so that errors are
// found without a cluster and before anything is created.
func (e *environment) manifest(file string, kind *kind) (*unstructured.Unstructured, error) {
	document, name, err := e.oneDocument(file)
	if err != nil {
		return nil, err
	}
	return decodeJob(document, name, kind)
}

// oneDocument returns the only object of a file.
func (e *environment) oneDocument(file string) (document []byte, name string, err error) {
	docs, name, err := e.readDocuments(file)
	if err != nil {
		return nil, name, err
	}
	if len(docs) == 1 {
		return docs[0], name, nil
	}
	f := inputFailure(fmt.Sprintf("%s contains %d documents instead of one job", name, len(docs)))
	if len(docs) > 1 {
		f.suggestions = []string{"Pass one job at a time, or create all of them: kubectl create -f " + file}
	}
	return nil, name, f
}

// decodeJob reads a job of a kind. Unknown fields are errors.
func decodeJob(document []byte, name string, kind *kind) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(document, &object.Object); err != nil || object.Object == nil {
		return nil, inputFailure(name + " is not a Kubernetes object: apiVersion, kind and metadata are missing")
	}
	if err := checkKind(object, name, kind); err != nil {
		return nil, err
	}
	_, unknown, err := kind.Decode(document)
	if err != nil {
		return nil, inputFailure(fmt.Sprintf("%s is not a valid %s", name, kind.Kind), err.Error())
	}
	if len(unknown) > 0 {
		f := inputFailure(fmt.Sprintf("%s has fields that do not exist in %s", name, kind.Kind))
		for _, field := range unknown {
			f.details = append(f.details, field.Error())
		}
		f.suggestions = append(f.suggestions, "List the fields: kubectl explain "+kind.Command+".spec --recursive")
		return nil, f
	}
	return object, nil
}

func checkKind(object *unstructured.Unstructured, name string, kind *kind) error {
	gvk := object.GroupVersionKind()
	if gvk == kind.GVK {
		return nil
	}
	f := inputFailure(fmt.Sprintf("%s contains kind %s of %s; expected kind %s of %s", name, orDash(gvk.Kind), orDash(object.GetAPIVersion()), kind.Kind, kind.GVK.GroupVersion()))
	for _, k := range kinds {
		if gvk == k.GVK {
			f.suggestions = []string{fmt.Sprintf("Use odh %s create", k.Command)}
		}
	}
	if gvk.Group == training.Group && gvk.Kind == mpiJobs.GVK.Kind && gvk.Version != mpiJobs.GVK.Version {
		f.suggestions = []string{"See how to migrate it: odh migrate " + name}
	}
	return f
}
