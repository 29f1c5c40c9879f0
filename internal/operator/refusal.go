package operator

import "strings"

// passesByItself says why a refusal needs no remedy: a new namespace has its service
// account a moment later, a new quota is counted a moment later, and the API server's
// own plugins know a new CRD up to half a minute later.
func passesByItself(message string) (reason string, passes bool) {
	switch {
	case strings.Contains(message, "error looking up service account"):
		return "NoServiceAccount", true
	case strings.Contains(message, "status unknown for quota"):
		return "QuotaNotCounted", true
	case strings.Contains(message, "cannot find RESTMapping"):
		return "KindNotKnownYet", true
	}
	return "", false
}

// lacksRight tells whether it is the operator that may not: that is not the job's
// fault.
func lacksRight(message string) bool {
	return strings.Contains(message, "cannot create resource") || strings.Contains(message, "you can't set finalizers on")
}
