// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"testing"

	"github.com/trireme-mpi/trireme/internal/engine/quota"
)

// refusals are messages of the API server about objects that it rejects.
var refusals = map[string]struct {
	message string
	quota   string
	isQuota bool
	// passes is why it passes by itself.
	passes string
	// lacks: it is the operator that may not.
	lacks bool
}{
	"quota of pods": {
		message: `pods "train-worker-1" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=8, limited: pods=8`, quota: "compute", isQuota: true,
	},
	"quota of several resources": {
		message: `pods "train-worker-0-1-r0" is forbidden: exceeded quota: team-a.gpus-2026, requested: limits.cpu=8,requests.nvidia.com/gpu=8, used: limits.cpu=56,requests.nvidia.com/gpu=56, limited: limits.cpu=60,requests.nvidia.com/gpu=60`,
		quota:   "team-a.gpus-2026", isQuota: true,
	},
	"quota of claims": {
		message: `persistentvolumeclaims "train-workspace" is forbidden: exceeded quota: storage, requested: requests.storage=1Ti, used: requests.storage=0, limited: requests.storage=100Gi`,
		quota:   "storage", isQuota: true,
	},
	"quota of objects": {
		message: `jobsets.jobset.x-k8s.io "train" is forbidden: exceeded quota: objects, requested: count/jobsets.jobset.x-k8s.io=1, used: count/jobsets.jobset.x-k8s.io=3, limited: count/jobsets.jobset.x-k8s.io=3`,
		quota:   "objects", isQuota: true,
	},
	"what a quota needs is not said": {
		message: `pods "train-launcher-r0" is forbidden: failed quota: compute: must specify limits.cpu for: main; limits.memory for: main`,
	},
	"no quota covers it": {
		message: `pods "train-launcher-r0" is forbidden: insufficient quota to consume: requests.nvidia.com/gpu`,
	},
	"quota is not counted yet": {
		message: `pods "train-worker-0" is forbidden: status unknown for quota: compute, resources: limits.cpu,limits.memory,pods`, passes: "QuotaNotCounted",
	},
	"no service account yet": {
		message: `pods "train-launcher-r0" is forbidden: error looking up service account team/default: serviceaccount "default" not found`, passes: "NoServiceAccount",
	},
	"PodSecurity": {
		message: `pods "train-worker-0" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true (pod or container "main" must set securityContext.runAsNonRoot=true)`,
	},
	"LimitRange": {
		message: `pods "train-worker-0" is forbidden: maximum memory usage per Container is 8Gi, but limit is 16Gi`,
	},
	"a webhook": {
		message: `admission webhook "validate.kyverno.svc-fail" denied the request: quotas are for others`,
	},
	"the operator may not": {
		message: `pods is forbidden: User "system:serviceaccount:trireme-system:trireme" cannot create resource "pods" in API group "" in the namespace "team"`, lacks: true,
	},
	"the operator may not, in a namespace of a telling name": {
		message: `pods is forbidden: User "system:serviceaccount:trireme-system:trireme" cannot create resource "pods" in API group "" in the namespace "quota"`, lacks: true,
	},
	"not valid": {
		message: `Pod "train-worker-0" is invalid: spec.containers[0].resources.requests: Invalid value: "4": must be less than or equal to cpu limit of 2`,
	},
}

func TestRefusals(t *testing.T) {
	for name, test := range refusals {
		if exceeded, isQuota := quota.ParseExceeded(test.message); exceeded != test.quota || isQuota != test.isQuota {
			t.Errorf("%s: quota %q, %t", name, exceeded, isQuota)
		}
		if reason, passes := isTemporary(test.message); reason != test.passes || passes != (test.passes != "") {
			t.Errorf("%s: passes by itself for %q, %t", name, reason, passes)
		}
		if lacks := lacksPermission(test.message); lacks != test.lacks {
			t.Errorf("%s: the operator lacks a permission: %t", name, lacks)
		}
	}
}
