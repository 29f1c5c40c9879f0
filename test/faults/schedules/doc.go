// SPDX-License-Identifier: Apache-2.0

// Package schedules drives the operator through random histories: the seed decides
// what happens next, and the same seed makes the same history.
//
// One process, no cluster. The reconcilers and their watches are the product's own;
// the API server (server_test.go), the caches that lag behind it (informer_test.go)
// and what else runs in a cluster (kubernetes_test.go) are simulated. Goroutines and
// time stand still between two steps (testing/synctest), so that nothing but the
// seed decides.
package schedules
