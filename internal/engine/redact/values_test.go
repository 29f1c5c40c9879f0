// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSecretValues(t *testing.T) {
	environment := []string{
		"DB_PASSWORD=correct horse", "API_TOKEN=s3abc123def456", "PIN_PASSWORD=1234", "PAD_TOKEN=<pad>", "TOKEN_FILE=/run/token", "PASSWORD_FILE=/run/password",
		"GIT_PASSWORD=/run/secrets/git", "NOTHING", "HOME=/root", "EMPTY_SECRET=", "LONGER_SECRET=correct horse battery",
	}
	want := []string{"correct horse battery", "s3abc123def456", "correct horse"}
	got := SecretValues(environment)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	const text = "cannot log in with correct horse battery, (correct horse) or xs3abc123def456x"
	if diff := cmp.Diff("cannot log in with [redacted], ([redacted]) or x[redacted]x", Values(text, got)); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}
