// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import corev1 "k8s.io/api/core/v1"

const (
	tcp = corev1.ProtocolTCP
	udp = corev1.ProtocolUDP
)

// when a flow is let through.
type when int

const (
	never when = iota
	always
	// byDefault is under Default alone: Restricted closes it.
	byDefault
)

// flow is something that a network is asked for, and what must come of it.
type flow struct {
	from, to end
	port     int
	protocol corev1.Protocol
	passes   when
}

// flows are all that is promised of a job's network, with 443 left open.
func (in *cluster) flows() map[string]flow {
	return map[string]flow{
		"the launcher logs in to a worker":                       {in.launcher, in.worker, 2222, tcp, always},
		"the launcher logs in to an sshd of the image":           {in.launcher, in.worker, 22, tcp, always},
		"a worker calls the launcher back":                       {in.worker, in.launcher, 41234, tcp, always},
		"a worker answers where it is asked on the agent's port": {in.worker, in.launcher, 2222, tcp, always},
		"the launcher calls a worker on a high port":             {in.launcher, in.secondWorker, 65535, tcp, always},
		"workers send to each other":                             {in.worker, in.secondWorker, 50000, tcp, always},
		"workers send to each other by UDP":                      {in.secondWorker, in.worker, 50000, udp, always},
		"the initializer is one of the job's pods":               {in.initializer, in.worker, 8080, tcp, always},

		"names are asked of kube-dns":                    {in.launcher, in.dns, 53, udp, always},
		"long answers come from kube-dns by TCP":         {in.worker, in.dns, 53, tcp, always},
		"names are asked of OpenShift's DNS":             {in.worker, in.openshiftDNS, 5353, udp, always},
		"long answers come from OpenShift's DNS by TCP":  {in.launcher, in.openshiftDNS, 5353, tcp, always},
		"names are asked of a cache on the node":         {in.initializer, in.nodeDNS, 53, udp, always},
		"a nameserver's other ports":                     {in.worker, in.dns, 9153, tcp, byDefault},
		"a launcher asks for names where nobody answers": {in.launcher, in.nodeDNS, 54, udp, byDefault},

		"the initializer fetches from the internet":            {in.initializer, in.internet, 443, tcp, always},
		"the initializer fetches from storage in the cluster":  {in.initializer, in.storageInCluster, 443, tcp, always},
		"the initializer asks storage on a port of its own":    {in.initializer, in.storageInCluster, 9000, tcp, byDefault},
		"the initializer asks the internet without encryption": {in.initializer, in.internet, 80, tcp, byDefault},
		"the initializer asks the internet by UDP":             {in.initializer, in.internet, 443, udp, byDefault},
		"the initializer asks the API server":                  {in.initializer, in.server, 6443, tcp, byDefault},
		"a worker sends data out":                              {in.worker, in.internet, 8443, tcp, byDefault},
		"a worker asks a pod of its namespace":                 {in.worker, in.foreigner, 8080, tcp, byDefault},
		"the launcher asks a pod of another namespace":         {in.launcher, in.foreignerElsewhere, 8080, tcp, byDefault},

		"another job logs in to a worker":                          {in.neighbour, in.worker, 2222, tcp, never},
		"another job calls the launcher on a high port":            {in.neighbour, in.launcher, 41234, tcp, never},
		"another job with a policy logs in to a worker":            {in.guardedNeighbour, in.worker, 2222, tcp, never},
		"another job reaches the initializer on a port left open":  {in.neighbour, in.initializer, 443, tcp, never},
		"a job of that name and the other kind logs in":            {in.twin, in.worker, 2222, tcp, never},
		"a job of that name and the other kind, with a policy":     {in.guardedTwin, in.worker, 2222, tcp, never},
		"a job of that name and kind in another namespace":         {in.namesake, in.worker, 2222, tcp, never},
		"a pod of the namespace logs in to a worker":               {in.foreigner, in.worker, 2222, tcp, never},
		"a pod of the namespace asks the launcher on an open port": {in.foreigner, in.launcher, 443, tcp, never},
		"a pod of the namespace asks a worker for names":           {in.foreigner, in.worker, 53, udp, never},
		"a pod with only the job's name logs in":                   {in.halfNamed, in.worker, 2222, tcp, never},
		"a pod with only the job's type logs in":                   {in.halfTyped, in.worker, 2222, tcp, never},
		"a pod of another namespace logs in to a worker":           {in.foreignerElsewhere, in.worker, 2222, tcp, never},
		"the internet reaches the launcher":                        {in.internet, in.launcher, 2222, tcp, never},

		"the job logs in to another job with a policy":                     {in.launcher, in.guardedNeighbour, 2222, tcp, never},
		"the job asks another job with a policy on an open port":           {in.worker, in.guardedNeighbour, 443, tcp, never},
		"the job asks another job with a policy for names":                 {in.worker, in.guardedNeighbour, 53, udp, never},
		"the job logs in to one of its name with a policy":                 {in.launcher, in.guardedTwin, 2222, tcp, never},
		"the job logs in to another job without a policy":                  {in.launcher, in.neighbour, 2222, tcp, byDefault},
		"the job logs in to one of its name without a policy":              {in.launcher, in.twin, 2222, tcp, byDefault},
		"the job logs in to one of its name and kind elsewhere":            {in.launcher, in.namesake, 2222, tcp, byDefault},
		"the job logs in to a pod with only its name":                      {in.launcher, in.halfNamed, 2222, tcp, byDefault},
		"others reach another job as before":                               {in.foreigner, in.neighbour, 8080, tcp, always},
		"others reach a job of that name and the other kind as before":     {in.foreigner, in.twin, 8080, tcp, always},
		"others reach a job of that name in another namespace as before":   {in.foreigner, in.namesake, 8080, tcp, always},
		"another job sends data out as before":                             {in.neighbour, in.internet, 8443, tcp, always},
		"a job of that name and the other kind sends data out as before":   {in.twin, in.internet, 8443, tcp, always},
		"a job of that name in another namespace sends data out as before": {in.namesake, in.internet, 8443, tcp, always},
	}
}
