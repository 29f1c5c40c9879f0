// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sigs.k8s.io/yaml"
)

// plugin is the name after kubectl: krew links the program as kubectl-trireme.
const plugin = "trireme"

const pluginDescription = `Submits training jobs that run with MPI, and shows their progress, logs and
failures: TrainJobs and MPIJobs, on one engine.

The same program is odh. It needs a cluster with Trireme's operator; kubectl
trireme preflight checks whether a job can run there.
`

// krewManifest describes the archives of odh for krew, the plugin manager of kubectl.
func krewManifest(tag string, archives []odhArchive) ([]byte, error) {
	var platforms []any
	for _, one := range archives {
		platforms = append(platforms, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]string{"os": one.platform.os, "arch": one.platform.architecture}},
			"uri":      repositoryURL + "/releases/download/" + tag + "/" + one.name,
			"sha256":   one.digest,
			"bin":      one.platform.program(),
		})
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]string{"name": plugin},
		"spec": map[string]any{
			"version":          tag,
			"homepage":         repositoryURL,
			"shortDescription": "Run MPI training jobs and find out why they fail",
			"description":      pluginDescription,
			"platforms":        platforms,
		},
	})
}
