// SPDX-License-Identifier: Apache-2.0

package main

import "encoding/base64"

// catalog returns the package, its channel and this bundle, as a file-based catalog.
func (b *bundle) catalog(image string) []any {
	name := "trireme.v" + b.version
	return []any{
		map[string]any{
			"schema": "olm.package", "name": "trireme", "defaultChannel": channel, "description": summary,
			"icon": map[string]any{"base64data": base64.StdEncoding.EncodeToString(icon), "mediatype": "image/svg+xml"},
		},
		map[string]any{"schema": "olm.channel", "name": channel, "package": "trireme", "entries": []any{map[string]any{"name": name}}},
		map[string]any{
			"schema": "olm.bundle", "name": name, "package": "trireme", "image": image,
			"properties": b.properties(), "relatedImages": append(b.relatedImages(), map[string]any{"name": "bundle", "image": image}),
		},
	}
}

// properties are what OLM resolves versions and dependencies by.
func (b *bundle) properties() []any {
	list := []any{property("olm.package", map[string]any{"packageName": "trireme", "version": b.version})}
	for _, crd := range b.crds {
		spec := fields(crd, "spec")
		for _, v := range spec["versions"].([]any) {
			list = append(list, property("olm.gvk", map[string]any{
				"group": spec["group"], "kind": fields(spec, "names")["kind"], "version": v.(map[string]any)["name"],
			}))
		}
	}
	spec := fields(b.csv, "spec")
	metadata := map[string]any{"annotations": fields(fields(b.csv, "metadata"), "annotations"), "crdDescriptions": spec["customresourcedefinitions"]}
	for _, field := range []string{"displayName", "description", "installModes", "keywords", "links", "maturity", "minKubeVersion", "provider"} {
		metadata[field] = spec[field]
	}
	return append(list, property("olm.csv.metadata", metadata))
}

func property(kind string, value any) map[string]any {
	return map[string]any{"type": kind, "value": value}
}
