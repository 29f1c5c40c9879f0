package quota

import "testing"

func TestIsRefusal(t *testing.T) {
	for message, want := range map[string]bool{
		`pods "a" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2`: true,
		"Error: Quota exceeded\nDetails: Requested 40 GPUs":                                              true,
		"Insufficient namespace quota: requested 4 GPUs, available 1 GPU":                                true,
		`pods "a" is forbidden: violates PodSecurity "restricted:latest"`:                                false,
		"": false,
	} {
		if got := IsRefusal(message); got != want {
			t.Errorf("%q: %v", message, got)
		}
	}
}
