// SPDX-License-Identifier: Apache-2.0

package job

import "testing"

func TestCheckQuantities(t *testing.T) {
	tests := map[string]struct {
		document string
		want     string
	}{
		"text":                     {`{"spec": {"limits": {"cpu": "915395.83E7268861526839397"}}}`, "spec.limits.cpu: 915395.83E7268861526839397 is too large or too small for a quantity"},
		"a number":                 {`{"a": 1, "limits": {"cpu": 1e999999999}}`, "limits.cpu: 1e999999999 is too large or too small for a quantity"},
		"a tiny number":            {`{"cpu": "1e-999999999"}`, "cpu: 1e-999999999 is too large or too small for a quantity"},
		"a negative number":        {`{"cpu": "-2E+99999999"}`, "cpu: -2E+99999999 is too large or too small for a quantity"},
		"spelled with escapes":     {`{"cpu": "\u0031\u004599999999"}`, "cpu: 1E99999999 is too large or too small for a quantity"},
		"behind lists and objects": {`{"a": [1, {"b": []}, "c"], "d": {}, "containers": [{"limits": {"cpu": "1e99999"}}]}`, "containers.limits.cpu: 1e99999 is too large or too small for a quantity"},
		"a resource named value":   {`{"limits": {"value": "1e99999"}}`, "limits.value: 1e99999 is too large or too small for a quantity"},
		"usual quantities":         {`{"a": "1e3", "b": "16Gi", "c": 2, "d": "1E18", "e": "1e999"}`, ""},
		"arguments of a command":   {`{"command": ["train", "--limit", "1e10000"]}`, ""},
		"a variable":               {`{"env": [{"name": "LIMIT", "value": "1e10000"}]}`, ""},
		"in a text":                {`{"image": "train:1e10000", "hash": "e12345"}`, ""},
		"incomplete JSON":          {`{"cpu": 1e99999`, "cpu: 1e99999 is too large or too small for a quantity"},
		"plain text":               {`e99999 \u`, ""},
		"unbalanced brackets":      {`]}e99999`, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := CheckQuantities([]byte(test.document)); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
