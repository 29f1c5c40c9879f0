// SPDX-License-Identifier: Apache-2.0

//go:build linux

package networkpolicy

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netns"
)

// The kernel must accept every kind of rule, again and again, in a network namespace of
// the test's own.
func TestKernelAcceptsTheRules(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft is not on this machine (Debian: nftables)")
	}
	// Never unlocked: the thread ends with the test, and with it the namespace.
	runtime.LockOSThread()
	namespace, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	rules := Ruleset(state(t,
		`{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}, {ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8, 10.1.0.0/16]}}], ports: [{port: 80}, {port: 70, endPort: 90}, {port: web}, {protocol: UDP}, {protocol: SCTP, port: 7}]}]}`,
		`{podSelector: {matchLabels: {job: a}}, policyTypes: [Ingress, Egress], ingress: [{}], egress: [{to: [{podSelector: {}}], ports: [{port: web}]}]}`,
	))
	for range 2 {
		if err := Load(t.Context(), rules); err != nil {
			t.Fatalf("%v\n%s", err, rules)
		}
	}
	if err := Load(t.Context(), Ruleset(state(t))); err != nil {
		t.Fatal(err)
	}
	listed, err := exec.CommandContext(t.Context(), "nft", "list", "table", "ip", Table).CombinedOutput()
	if err != nil || !strings.Contains(string(listed), "10.199.128.2") || strings.Contains(string(listed), "chain Ingress-") {
		t.Errorf("after the policies were deleted: %v\n%s", err, listed)
	}
}
