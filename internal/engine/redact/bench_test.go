// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"strings"
	"testing"
)

// The cost of lines of which nearly all have no secret.
func BenchmarkLine(b *testing.B) {
	secretLine, _, _ := secretsIn(known["password="])
	token, _, _ := secretsIn(known["JWT"])
	for name, line := range map[string]string{
		"loss":     "[1,3]<stdout>:epoch: 3 step: 1200 loss: 0.4231 lr: 3e-4 tokens: 1234 tokens/s: 88123.5",
		"progress": "100%|██████████| 938/938 [00:12<00:00, 75.2it/s, loss=0.0421, acc=0.98]",
		"nccl":     "train-worker-0:77:91 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
		"json":     `{"time":"2026-01-01T00:00:00Z","level":"info","msg":"step","loss":0.1,"grad_norm":1.25,"token_accuracy":0.99}`,
		"password": secretLine,
		"JWT":      token,
		"1 MB":     strings.Repeat("step 12 loss=0.1 ", 1<<16),
	} {
		b.Run(name, func(b *testing.B) {
			filter := New()
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				filter.Line("pod/container/0", line, false)
			}
		})
	}
}
