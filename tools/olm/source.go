// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"
)

// object is a Kubernetes object as it was read.
type object map[string]any

func (o object) kind() string { return o["kind"].(string) }
func (o object) name() string { return o.metadata()["name"].(string) }

func (o object) metadata() map[string]any { return o["metadata"].(map[string]any) }

// fields returns the object in a field, or nil.
func fields(of map[string]any, name string) map[string]any {
	found, _ := of[name].(map[string]any)
	return found
}

// isHook reports whether only Helm uses the object: OLM has no hooks.
func (o object) isHook() bool {
	_, found := fields(o.metadata(), "annotations")["helm.sh/hook"]
	return found
}

// source is where the content of a bundle comes from.
type source struct{ manifests, repository string }

// rendered is that content: the chart's objects, CRDs, and samples.
type rendered struct{ objects, crds, samples []object }

func (s source) read() (r rendered, err error) {
	var errs [3]error
	r.objects, errs[0] = readObjects(s.manifests)
	r.crds, errs[1] = readObjects(filepath.Join(s.repository, "charts/trireme/crds/*.yaml"))
	r.samples, errs[2] = readObjects(filepath.Join(s.repository, "config/samples/*.yaml"))
	return r, errors.Join(errs[:]...)
}

func readObjects(pattern string) (objects []object, err error) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("%s: no such file (%v)", pattern, err)
	}
	slices.Sort(files)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
			var o object
			if err := yaml.Unmarshal(document, &o); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if len(o) > 0 {
				objects = append(objects, withoutHelm(o))
			}
		}
	}
	return objects, nil
}

// withoutHelm removes the labels by which Helm recognizes its objects.
func withoutHelm(o object) object {
	labels := fields(o.metadata(), "labels")
	for _, label := range []string{"app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "helm.sh/chart"} {
		delete(labels, label)
	}
	return o
}
