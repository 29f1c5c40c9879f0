package operator

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// discoveryAge is how old knowledge of the cluster may be.
const discoveryAge = time.Minute

// managedJobs is the first Kubernetes that leaves batch Jobs with managedBy to others
// by default.
var managedJobs = version.MustParseSemantic("1.32.0")

// surroundings is what the operator knows of its cluster. It is asked for when a
// job needs it, and kept for a while.
type surroundings struct {
	settings  *config.Config
	reader    client.Reader
	discovery discovery.DiscoveryInterface
	domain    string
	jobSets   atomic.Bool

	mutex sync.Mutex
	asked time.Time
	known discovered
}

// discovered is what the cluster says of itself.
type discovered struct {
	available gang.Available
	method    plan.Method
	// tooOld is the API server's version, if it does not know managedBy of batch Jobs.
	tooOld string
}

// around is what the plan is told, with the words of why.
type around struct {
	plan.Surroundings
	gangWords string
}

// withoutGang is enough to delete things.
func (in around) withoutGang() around {
	in.Gang, _, _ = gang.Choose(&job.Job{}, gang.Available{})
	return in
}

func newSurroundings(settings *config.Config, reader client.Reader, discovery discovery.DiscoveryInterface) (*surroundings, error) {
	domain, err := findClusterDomain(settings)
	if err != nil {
		return nil, err
	}
	return &surroundings{settings: settings, reader: reader, discovery: discovery, domain: domain}, nil
}

// findClusterDomain is what the names of Services end in.
func findClusterDomain(settings *config.Config) (string, error) {
	if settings.ClusterDomain != "" {
		return settings.ClusterDomain, nil
	}
	content, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return "", fmt.Errorf("find out what names of Services end in: %w; set clusterDomain", err)
	}
	domain := clusterDomain(string(content))
	if domain == "" {
		return "", fmt.Errorf("find out what names of Services end in: /etc/resolv.conf has no search domain that begins with svc., as pods have it; set clusterDomain")
	}
	return domain, nil
}

// clusterDomain reads what a pod's names are searched in: namespace.svc.DOMAIN,
// svc.DOMAIN, DOMAIN.
func clusterDomain(resolvConf string) string {
	for line := range strings.Lines(resolvConf) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "search" {
			continue
		}
		for _, word := range words[1:] {
			if domain, found := strings.CutPrefix(word, "svc."); found {
				return strings.TrimSuffix(domain, ".")
			}
		}
	}
	return ""
}

func (s *surroundings) hasJobSet() bool { return s.jobSets.Load() }

// of is what the plan of one job is told. An obstacle keeps it from starting.
func (s *surroundings) of(ctx context.Context, j *job.Job, previous diagnosis.Previous) (around, *diagnosis.Answer, error) {
	in := around{Surroundings: plan.Surroundings{
		InitializerImage: s.settings.Initializer.Image, ClusterDomain: s.domain, EgressPorts: s.settings.Network.EgressPorts,
	}}
	known, err := s.discover(ctx)
	if err != nil {
		return in, nil, err
	}
	if known.tooOld != "" {
		return in, &diagnosis.Answer{Reason: "KubernetesTooOld", Message: fmt.Sprintf(
			"This cluster runs Kubernetes %s. Trireme needs %s or newer, which leaves batch Jobs with managedBy to it. Upgrade the cluster; the job then starts by itself.", known.tooOld, managedJobs)}, nil
	}
	in.Delivery = plan.Delivery{Method: known.method, Image: s.settings.Agent.Image, PullSecrets: s.settings.Agent.PullSecrets}
	backend, words, err := gang.Choose(j, known.available)
	if err != nil {
		return in, &diagnosis.Answer{Reason: "NoGangScheduler", Message: err.Error()}, nil
	}
	if j.Kind.Traits().Workload == job.WorkloadJobSet && !s.hasJobSet() && !previous.Finished() {
		return in, &diagnosis.Answer{Reason: "JobSetNotInstalled", Message: "This cluster does not have the JobSet API (jobset.x-k8s.io), which TrainJobs need. Install its CRD; the job then starts by itself."}, nil
	}
	in.Gang, in.gangWords = backend, words
	return in, nil, nil
}

// discover asks the cluster which schedulers it has and how the agent gets into
// its pods.
func (s *surroundings) discover(ctx context.Context) (discovered, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if time.Since(s.asked) < discoveryAge {
		return s.known, nil
	}
	var found discovered
	var err error
	if found.available, err = gang.Discover(s.discovery); err != nil {
		return found, err
	}
	found.available.CoschedulerName = s.settings.Gang.CoschedulerName
	server, err := s.discovery.ServerVersion()
	if err != nil {
		return found, fmt.Errorf("ask the API server for its version: %w", err)
	}
	found.method = plan.Method(s.settings.Agent.Delivery)
	if s.settings.Agent.Delivery == config.DeliveryAuto {
		if found.method, err = s.bestMethod(ctx, server.GitVersion); err != nil {
			return found, err
		}
	}
	if parsed, err := version.ParseGeneric(server.GitVersion); err == nil && parsed.LessThan(managedJobs) {
		found.tooOld = server.GitVersion
	}
	s.known, s.asked = found, time.Now()
	return found, nil
}

func (s *surroundings) bestMethod(ctx context.Context, server string) (plan.Method, error) {
	var nodes corev1.NodeList
	if err := s.reader.List(ctx, &nodes); err != nil {
		return "", fmt.Errorf("list nodes: %w", err)
	}
	return plan.BestMethod(server, nodes.Items), nil
}
