// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"sigs.k8s.io/yaml"
)

// channel is the only one of the catalog, until there is a stable release.
const channel = "alpha"

// bundle is what OLM installs, and what an administrator applies beside it.
type bundle struct {
	version string
	rendered
	// manifests are the objects that OLM creates as they are.
	manifests []object
	// beside are the objects that OLM cannot create.
	beside []object
	// bound has the rules of each service account, which belong to the CSV.
	bound map[string]*rules
	csv   map[string]any
}

// rules are the permissions of a service account.
type rules struct{ cluster, namespace []any }

// bundled are the kinds that OLM creates from a bundle. ServiceAccounts, their roles and
// Deployments are in the CSV.
var bundled = []string{"ClusterRole", "ClusterRoleBinding", "ConfigMap", "ConsoleLink", "NetworkPolicy", "PodDisruptionBudget", "PrometheusRule", "Role", "RoleBinding", "Secret", "Service", "ServiceMonitor"}

// ownedByOperator reports whether the operator creates the object when it is missing. In a
// bundle, an upgrade would empty it.
func ownedByOperator(o object) bool {
	switch o.kind() {
	case "Lease":
		return true
	case "Secret":
		// Kubernetes fills the others.
		return o["type"] != "kubernetes.io/service-account-token"
	case "ConfigMap":
		return o.name() == "trireme-ca"
	}
	return false
}

func newBundle(from rendered, version string) (*bundle, error) {
	if _, err := semver.Parse(version); err != nil {
		return nil, fmt.Errorf("--version %q is not a version such as v0.1.0: %w", version, err)
	}
	b := &bundle{version: version, rendered: from, bound: map[string]*rules{}}
	inCSV := b.bindServiceAccounts()
	for _, o := range from.objects {
		switch {
		case o.isHook():
			runtimes, err := runtimesOf(o)
			if err != nil {
				return nil, err
			}
			b.beside = append(b.beside, runtimes...)
		case inCSV[o.kind()+"/"+o.name()], ownedByOperator(o):
		case slices.Contains(bundled, o.kind()):
			// OLM creates all objects in the namespace of the CSV.
			delete(o.metadata(), "namespace")
			b.manifests = append(b.manifests, o)
		default:
			b.beside = append(b.beside, o)
		}
	}
	var err error
	b.csv, err = b.newCSV()
	return b, err
}

// bindServiceAccounts gathers the rules of service accounts, and returns what the CSV
// replaces: Deployments, ServiceAccounts, and roles and bindings for them alone.
func (b *bundle) bindServiceAccounts() map[string]bool {
	inCSV := map[string]bool{}
	for _, o := range b.objects {
		if o.isHook() {
			continue
		}
		if o.kind() == "Deployment" || o.kind() == "ServiceAccount" {
			inCSV[o.kind()+"/"+o.name()] = true
		}
		account := boundAccount(o)
		if account == "" {
			continue
		}
		if b.bound[account] == nil {
			b.bound[account] = &rules{}
		}
		reference := fields(o, "roleRef")
		kind, name := reference["kind"].(string), reference["name"].(string)
		inCSV[o.kind()+"/"+o.name()], inCSV[kind+"/"+name] = true, true
		for _, role := range b.objects {
			if role.kind() != kind || role.name() != name {
				continue
			}
			if o.kind() == "ClusterRoleBinding" {
				b.bound[account].cluster = append(b.bound[account].cluster, role["rules"].([]any)...)
			} else {
				b.bound[account].namespace = append(b.bound[account].namespace, role["rules"].([]any)...)
			}
		}
	}
	return inCSV
}

// boundAccount returns the service account of a binding, or nothing if it is for users.
func boundAccount(o object) string {
	if !strings.HasSuffix(o.kind(), "RoleBinding") {
		return ""
	}
	subject := o["subjects"].([]any)[0].(map[string]any)
	if subject["kind"] != "ServiceAccount" {
		return ""
	}
	return subject["name"].(string)
}

// runtimesOf returns the runtimes in the ConfigMap that Helm's hook applies.
func runtimesOf(o object) (runtimes []object, err error) {
	if o.kind() != "ConfigMap" || o.name() != "trireme-runtimes" {
		return nil, nil
	}
	data := fields(o, "data")
	for _, file := range sortedKeys(data) {
		var runtime object
		if err := yaml.Unmarshal([]byte(data[file].(string)), &runtime); err != nil {
			return nil, fmt.Errorf("ConfigMap %s, %s: %w", o.name(), file, err)
		}
		runtimes = append(runtimes, runtime)
	}
	return runtimes, nil
}

func sortedKeys(m map[string]any) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// files returns all files by their paths below dist/.
func (b *bundle) files(image string) map[string][]byte {
	files := map[string][]byte{
		"bundle/manifests/trireme.clusterserviceversion.yaml": documents(b.csv),
		"bundle/metadata/annotations.yaml":                    documents(map[string]any{"annotations": annotations()}),
		"catalog/trireme/catalog.yaml":                        documents(b.catalog(image)...),
	}
	for _, o := range slices.Concat(b.crds, b.manifests) {
		name := fmt.Sprintf("bundle/manifests/%s_%s.yaml", o.name(), strings.ToLower(o.kind()))
		files[name] = documents(o)
	}
	var beside []any
	for _, o := range b.beside {
		beside = append(beside, o)
	}
	files["olm-objects.yaml"] = append([]byte("# What OLM cannot create from a bundle. Apply it after the operator: oc apply --server-side -f olm-objects.yaml\n"), documents(beside...)...)
	return files
}

// annotations describe the bundle to OLM. OpenShift 4.20 has Kubernetes 1.33.
func annotations() map[string]any {
	return map[string]any{
		"operators.operatorframework.io.bundle.mediatype.v1":       "registry+v1",
		"operators.operatorframework.io.bundle.manifests.v1":       "manifests/",
		"operators.operatorframework.io.bundle.metadata.v1":        "metadata/",
		"operators.operatorframework.io.bundle.package.v1":         "trireme",
		"operators.operatorframework.io.bundle.channels.v1":        channel,
		"operators.operatorframework.io.bundle.channel.default.v1": channel,
		"com.redhat.openshift.versions":                            "v4.20",
	}
}
