// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"sync"
)

// warnings keeps what the API server warned of.
type warnings struct {
	mutex sync.Mutex
	texts []string
}

func (warnings *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	warnings.mutex.Lock()
	defer warnings.mutex.Unlock()
	warnings.texts = append(warnings.texts, text)
}

// take is what has been warned of since it was last asked.
func (warnings *warnings) take() []string {
	warnings.mutex.Lock()
	defer warnings.mutex.Unlock()
	texts := warnings.texts
	warnings.texts = nil
	return texts
}
