// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

//go:embed icon.svg
var icon []byte

const (
	displayName = "Trireme"
	summary     = "MPI training jobs on Kubernetes and OpenShift AI"
	description = `Trireme runs MPI training jobs: TrainJobs, which are created from a runtime, and MPIJobs of Kubeflow's mpi-operator.

* Open MPI, Intel MPI and MPICH in any image, for any user ID, without sshd, root or capabilities
* Gang scheduling and queues: Kubernetes, coscheduling, Volcano, KAI and Kueue
* A status that names the pod, the rank, the cause and the remedy of a failure

Install it in the namespace trireme-system. Then apply olm-objects.yaml of the same release: it has what OLM cannot
create, the admission webhooks and policy, the security context constraints, the Route and the runtimes.`
	repository = "https://github.com/trireme-mpi/trireme"
)

func (b *bundle) newCSV() (map[string]any, error) {
	examples, err := json.MarshalIndent(b.samples, "", "  ")
	if err != nil {
		return nil, err
	}
	deployments, err := b.deployments()
	if err != nil {
		return nil, err
	}
	owned, err := b.ownedCRDs()
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"apiVersion": "operators.coreos.com/v1alpha1",
		"kind":       "ClusterServiceVersion",
		"metadata": map[string]any{
			"name":        "trireme.v" + b.version,
			"namespace":   "placeholder",
			"annotations": b.csvAnnotations(string(examples)),
		},
		"spec": map[string]any{
			"displayName": displayName, "description": description, "version": b.version, "minKubeVersion": "1.33.0",
			"maturity": "alpha", "provider": map[string]any{"name": "Trireme", "url": repository},
			"keywords":     []any{"mpi", "training", "hpc", "kubeflow", "horovod"},
			"links":        []any{map[string]any{"name": "Documentation", "url": repository}},
			"icon":         []any{map[string]any{"mediatype": "image/svg+xml", "base64data": base64.StdEncoding.EncodeToString(icon)}},
			"installModes": installModes(),
			"install": map[string]any{"strategy": "deployment", "spec": map[string]any{
				"deployments": deployments, "clusterPermissions": b.permissions(func(r *rules) []any { return r.cluster }),
				"permissions": b.permissions(func(r *rules) []any { return r.namespace }),
			}},
			"customresourcedefinitions": map[string]any{"owned": owned},
			"relatedImages":             b.relatedImages(),
		},
	}, nil
}

func (b *bundle) csvAnnotations(examples string) map[string]any {
	features := "features.operators.openshift.io/"
	return map[string]any{
		"alm-examples": examples, "capabilities": "Basic Install", "categories": "AI/Machine Learning",
		"description": summary, "repository": repository, "support": "Trireme maintainers",
		"containerImage": b.relatedImages()[0].(map[string]any)["image"],
		"operatorframework.io/suggested-namespace": "trireme-system",
		features + "disconnected":                  "true", features + "fips-compliant": "false", features + "proxy-aware": "false",
		features + "tls-profiles": "false", features + "token-auth-aws": "false", features + "token-auth-azure": "false", features + "token-auth-gcp": "false",
	}
}

// installModes: the operator watches all namespaces.
func installModes() (modes []any) {
	for _, mode := range []string{"OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"} {
		modes = append(modes, map[string]any{"type": mode, "supported": mode == "AllNamespaces"})
	}
	return modes
}

func (b *bundle) deployments() (list []any, err error) {
	for _, o := range b.objects {
		if o.kind() == "Deployment" {
			list = append(list, map[string]any{"name": o.name(), "spec": o["spec"], "label": fields(o.metadata(), "labels")})
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the rendered chart has no Deployment")
	}
	return list, nil
}

func (b *bundle) permissions(of func(*rules) []any) (list []any) {
	var accounts []string
	for account := range b.bound {
		accounts = append(accounts, account)
	}
	slices.Sort(accounts)
	for _, account := range accounts {
		if found := of(b.bound[account]); len(found) > 0 {
			list = append(list, map[string]any{"serviceAccountName": account, "rules": found})
		}
	}
	return list
}

// ownedCRDs describes each job API with the text of its schema.
func (b *bundle) ownedCRDs() (list []any, err error) {
	for _, crd := range b.crds {
		spec := fields(crd, "spec")
		kind := fields(spec, "names")["kind"].(string)
		for _, v := range spec["versions"].([]any) {
			version := v.(map[string]any)
			text, _ := fields(fields(version, "schema"), "openAPIV3Schema")["description"].(string)
			if text == "" {
				return nil, fmt.Errorf("CRD %s has no description", crd.name())
			}
			list = append(list, map[string]any{"name": crd.name(), "version": version["name"], "kind": kind, "displayName": kind, "description": text})
		}
	}
	return list, nil
}

// relatedImages lists every image of the installation, the operator's first, so that
// mirrors of disconnected clusters have them all: those of Deployments, and those that
// the operator's configuration names for the pods of jobs.
func (b *bundle) relatedImages() (list []any) {
	seen := map[string]bool{}
	add := func(image string) {
		if !seen[image] {
			seen[image] = true
			list = append(list, map[string]any{"name": imageName(image), "image": image})
		}
	}
	for _, o := range b.objects {
		if o.kind() == "Deployment" {
			pod := fields(fields(fields(o, "spec"), "template"), "spec")
			for _, c := range pod["containers"].([]any) {
				add(c.(map[string]any)["image"].(string))
			}
		}
	}
	for _, o := range b.objects {
		if o.kind() == "ConfigMap" && o.name() == "trireme-operator" {
			for line := range strings.Lines(fields(o, "data")["config.yaml"].(string)) {
				if image, found := strings.CutPrefix(strings.TrimSpace(line), "image: "); found {
					add(image)
				}
			}
		}
	}
	return list
}

// imageName is the last part of the repository: operator for registry.example/trireme/operator@sha256:….
func imageName(image string) string {
	base := image[strings.LastIndex(image, "/")+1:]
	return base[:strings.IndexAny(base+":", "@:")]
}
