package main

import (
	"github.com/coredns/coredns/coremain"

	// Only what the cluster's Corefile names: all plugins together would bring
	// three cloud SDKs and double the build.
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

// corednsFlags are what coremain registers on the process's flag set.
var corednsFlags = []string{"conf", "dns.port", "p", "pidfile", "plugins", "quiet", "version"}

func coredns() { coremain.Run() }
