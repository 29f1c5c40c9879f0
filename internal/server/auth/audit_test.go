// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAuditLine(t *testing.T) {
	for name, test := range map[string]struct {
		outcome Outcome
		want    map[string]any
	}{
		"nothing was to change": {outcome: Outcome{Caller: &Caller{User: "jane"}, Code: 200}},
		"done": {
			outcome: Outcome{
				Record: Record{Verb: "create", Kind: "MPIJob", Namespace: "team-cv", Name: "hello"}, Caller: &Caller{User: "jane", Groups: []string{"a"}},
				Source: "192.0.2.1", Code: 201, RequestID: "r",
			},
			want: map[string]any{
				"msg": "audit", "user": "jane", "groups": []any{"a"}, "verb": "create", "kind": "MPIJob", "namespace": "team-cv", "name": "hello",
				"code": 201.0, "result": "done", "source": "192.0.2.1", "requestID": "r",
			},
		},
		"refused, of nobody known": {
			outcome: Outcome{Record: Record{Verb: "delete"}, Code: 401},
			want: map[string]any{
				"msg": "audit", "user": "", "groups": nil, "verb": "delete", "kind": "", "namespace": "", "name": "",
				"code": 401.0, "result": "refused", "source": "", "requestID": "",
			},
		},
		"what is no name": {
			outcome: Outcome{Record: Record{Verb: "create", Kind: strings.Repeat("k", 60_000), Namespace: strings.Repeat("n", 253), Name: strings.Repeat("ü", 1<<20)}, Code: 422},
			want: map[string]any{
				"msg": "audit", "user": "", "groups": nil, "verb": "create", "kind": strings.Repeat("k", 253) + "…", "namespace": strings.Repeat("n", 253),
				"name": strings.Repeat("ü", 126) + "…", "code": 422.0, "result": "refused", "source": "", "requestID": "",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var written bytes.Buffer
			NewAudit(&written).Write(test.outcome)
			if test.want == nil {
				if written.Len() > 0 {
					t.Errorf("wrote %s", &written)
				}
				return
			}
			var got map[string]any
			if err := json.Unmarshal(written.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if _, err := time.Parse(time.RFC3339, got["time"].(string)); err != nil {
				t.Error(err)
			}
			delete(got, "time")
			if difference := cmp.Diff(test.want, got); difference != "" {
				t.Error(difference)
			}
		})
	}
}
