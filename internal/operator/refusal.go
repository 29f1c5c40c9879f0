// SPDX-License-Identifier: Apache-2.0

package operator

import "strings"

// isTemporary reports whether a refusal needs no remedy, and returns its reason: a new
// namespace gets its service account a little later, a new quota its first count, and the
// API server's admission plugins know a new CRD up to half a minute later.
func isTemporary(message string) (reason string, temporary bool) {
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

// lacksPermission reports whether the operator lacks a permission, which is not the
// job's fault.
func lacksPermission(message string) bool {
	return strings.Contains(message, "cannot create resource") || strings.Contains(message, "you can't set finalizers on")
}
