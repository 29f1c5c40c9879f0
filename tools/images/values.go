// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// chartValues returns values of the chart that install images by digest.
func chartValues(chart, registry string, images []builtImage) ([]byte, error) {
	keys, err := chartKeys(chart)
	if err != nil {
		return nil, err
	}
	values := map[string]any{"registry": registry}
	for _, image := range chartImages(images) {
		if keys[image.image] == "" {
			return nil, fmt.Errorf("%s has no image with the name %s", chart, image.image)
		}
		if image.image != testImage { // Its tag is the same with FIPS.
			values["tag"] = image.tag
		}
		values[keys[image.image]] = map[string]string{"digest": image.digest.String()}
	}
	content, err := yaml.Marshal(map[string]any{"images": values})
	return append([]byte("# helm install --values THIS_FILE installs exactly these images.\n"), content...), err
}

// chartKeys returns the key of each image in the values of the chart, by its name.
func chartKeys(file string) (map[string]string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var chart struct {
		Images map[string]any `json:"images"`
	}
	if err := yaml.Unmarshal(content, &chart); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	keys := map[string]string{}
	for key, value := range chart.Images {
		if image, ok := value.(map[string]any); ok {
			if name, ok := image["name"].(string); ok {
				keys[name] = key
			}
		}
	}
	return keys, nil
}
