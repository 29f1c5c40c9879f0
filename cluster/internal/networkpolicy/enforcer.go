// SPDX-License-Identifier: Apache-2.0

// Package networkpolicy enforces NetworkPolicies on the local cluster. It watches
// policies, pods and namespaces, and writes rules of the kernel's packet filter, which
// see every packet between pods because the network is routed (CNI plugin ptp).
package networkpolicy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
)

// retryPause is the time until the next attempt after nft has failed.
const retryPause = time.Second

// Enforcer keeps the rules of one network namespace up to date.
type Enforcer struct {
	Client kubernetes.Interface
	// Addresses is the range of pod addresses.
	Addresses netip.Prefix
	Log       *slog.Logger

	pods       corelisters.PodLister
	namespaces corelisters.NamespaceLister
	policies   networkinglisters.NetworkPolicyLister
	written    string
	health     health
}

// Run enforces policies until the context ends. It reports its health on an address of
// the network namespace.
func (e *Enforcer) Run(ctx context.Context, address string) error {
	e.health.set(errors.New("the rules are not written yet"))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("network policies: %w", err)
	}
	server := &http.Server{Handler: &e.health, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()

	changed := make(chan struct{}, 1)
	if err := e.watch(ctx, changed); err != nil {
		return err
	}
	for {
		err := e.write(ctx)
		e.health.set(err)
		var retry <-chan time.Time
		if err != nil && ctx.Err() == nil {
			e.Log.Error("rules are not written", "error", err)
			retry = time.After(retryPause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-retry:
		}
	}
}

// watch starts the informers and waits until they have all objects.
func (e *Enforcer) watch(ctx context.Context, changed chan<- struct{}) error {
	factory := informers.NewSharedInformerFactory(e.Client, 0)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // A write that has not started yet will see this change too.
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() },
	}
	pods, namespaces, policies := factory.Core().V1().Pods(), factory.Core().V1().Namespaces(), factory.Networking().V1().NetworkPolicies()
	for _, informer := range []cache.SharedIndexInformer{pods.Informer(), namespaces.Informer(), policies.Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("network policies: %w", err)
		}
	}
	e.pods, e.namespaces, e.policies = pods.Lister(), namespaces.Lister(), policies.Lister()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return nil
}

// write replaces the rules if they have changed.
func (e *Enforcer) write(ctx context.Context) error {
	state, err := e.state()
	if err != nil {
		return err
	}
	rules := Ruleset(state)
	if rules == e.written {
		return nil
	}
	if err := Load(ctx, rules); err != nil {
		return err
	}
	e.written = rules
	e.Log.Info("rules written", "policies", len(state.Policies), "pods", len(state.podsWithAddress()))
	return nil
}

func (e *Enforcer) state() (State, error) {
	pods, podError := e.pods.List(labels.Everything())
	namespaces, namespaceError := e.namespaces.List(labels.Everything())
	policies, policyError := e.policies.List(labels.Everything())
	return State{Addresses: e.Addresses, Pods: pods, Namespaces: namespaces, Policies: policies}, errors.Join(podError, namespaceError, policyError)
}

// Load gives rules to the kernel.
func Load(ctx context.Context, rules string) error {
	command := exec.CommandContext(ctx, "nft", "--file", "-")
	command.Stdin = strings.NewReader(rules)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, strings.TrimSpace(output.String()))
	}
	return nil
}

// health answers whether the last write succeeded.
type health struct {
	mutex sync.Mutex
	err   error
}

func (h *health) set(err error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.err = err
}

// ServeHTTP answers 200 if the rules are up to date.
func (h *health) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.err != nil {
		http.Error(w, h.err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
