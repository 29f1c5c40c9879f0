// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"os"

	"github.com/trireme-mpi/trireme/internal/engine/config"
)

// LoadConfig reads a configuration file over the defaults. An empty path returns the
// defaults.
func LoadConfig(path string) (*config.Config, error) {
	if path == "" {
		return config.Default(), nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return config.Parse(path, data)
}
