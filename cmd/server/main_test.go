// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	settings, err := parse([]string{"--allowed-origins=https://a.example, https://b.example", "--proxy-ca-file=ca.crt", "--proxy-names=oauth-proxy", "--streams=7"})
	if err != nil {
		t.Fatal(err)
	}
	if difference := cmp.Diff(commaList{"https://a.example", "https://b.example"}, settings.origins); difference != "" {
		t.Error(difference)
	}
	if settings.limits.Streams != 7 || settings.address != ":8443" || settings.proxy.Impersonate || settings.proxy.GroupsHeader != "" || len(settings.proxy.Names) != 1 {
		t.Errorf("%+v", settings)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"a certificate without a key": {[]string{"--tls-cert-file=a"}, "must be set together"},
		"a proxy without authority":   {[]string{"--proxy-names=a"}, "need --proxy-ca-file"},
		"belief without authority":    {[]string{"--impersonate"}, "need --proxy-ca-file"},
		"groups without authority":    {[]string{"--proxy-groups-header=X-Forwarded-Groups"}, "need --proxy-ca-file"},
		"a token for all to read":     {[]string{"--prometheus-url=http://prometheus:9090", "--prometheus-token-file=token"}, "needs a --prometheus-url with https"},
		"no calls at all":             {[]string{"--requests-per-second=0"}, "must be greater than 0"},
		"no unauthenticated calls":    {[]string{"--unauthenticated-requests-per-second=0"}, "must be greater than 0"},
		"no unauthenticated burst":    {[]string{"--unauthenticated-burst=-1"}, "must be greater than 0"},
		"no connections":              {[]string{"--connections-per-source=0"}, "must be greater than 0"},
		"more of one than of all":     {[]string{"--connections=10", "--connections-per-source=11"}, "not greater than --connections"},
		"a word":                      {[]string{"start"}, `unknown argument "start"`},
		"an unknown flag":             {[]string{"--nonsense"}, "nonsense"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parse(test.arguments); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestParseHistoryRefuses(t *testing.T) {
	complete := []string{"--directory=records", "--tls-cert-file=tls.crt", "--tls-key-file=tls.key"}
	if _, err := parseHistory(complete); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		arguments []string
		want      string
	}{
		"no store":          {complete[1:], "either --directory or --bucket"},
		"two stores":        {append([]string{"--bucket=s3://records"}, complete...), "either --directory or --bucket"},
		"no certificate":    {complete[:1], "--tls-cert-file and --tls-key-file are required"},
		"a size in words":   {append([]string{"--max-size=large"}, complete...), `"large" is not a size`},
		"a negative age":    {append([]string{"--max-age=-1h"}, complete...), "must be 0 or greater"},
		"logs without room": {append([]string{"--log-size=1Ki"}, complete...), "--log-size must be"},
		"logs too large":    {append([]string{"--log-size=33Mi"}, complete...), "--log-size must be"},
		"a word":            {append(complete, "start"), `unknown argument "start"`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parseHistory(test.arguments); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v", err)
			}
		})
	}
}
