package quota

import "strings"

// IsRefusal tells whether somebody refuses an object for want of quota: Kubernetes
// or our own admission.
func IsRefusal(message string) bool {
	return strings.Contains(message, "exceeded quota") || strings.Contains(strings.ToLower(message), "quota exceeded") || strings.Contains(message, "Insufficient namespace quota")
}
