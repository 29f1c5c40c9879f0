package operator

import (
	"regexp"
	"strings"
)

// exceededQuota is how the API server says that a quota is exceeded, and which.
var exceededQuota = regexp.MustCompile(`exceeded quota: ([^,\s]+)`)

// quotaOf reads which quota refuses an object, if one does.
func quotaOf(message string) (name string, isQuota bool) {
	if found := exceededQuota.FindStringSubmatch(message); found != nil {
		return found[1], true
	}
	return "", false
}

// passesByItself says why a refusal needs no remedy: a new namespace has its service
// account a moment later, a new quota is counted a moment later, and the API server's
// own plugins know a new CRD up to half a minute later.
func isTemporary(message string) (reason string, passes bool) {
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
func lacksPermission(message string) bool {
	return strings.Contains(message, "cannot create resource") || strings.Contains(message, "you can't set finalizers on")
}
