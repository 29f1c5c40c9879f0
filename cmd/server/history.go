// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"

	"github.com/trireme-mpi/trireme/internal/kube/jobreports"
	"github.com/trireme-mpi/trireme/internal/server/history"
)

// historyCommand is the argument with which the program keeps the history instead of
// serving clients.
const historyCommand = "history"

// minLogBytes keeps at least some lines, and maxLogBytes fit into the memory of the component
// and of the server several times.
const minLogBytes, maxLogBytes = 16 << 10, 32 << 20

// historySettings are the values of the flags of the history.
type historySettings struct {
	options                      history.Options
	directory                    string
	bucket                       history.BucketOptions
	maxSize, logSize             quantity
	reportsURL, reportsDirectory string
}

// quantity is a flag such as 10Gi.
type quantity int64

// String returns the value of the flag.
func (q *quantity) String() string {
	return resource.NewQuantity(int64(*q), resource.BinarySI).String()
}

// Set parses the value of the flag.
func (q *quantity) Set(text string) error {
	parsed, err := resource.ParseQuantity(text)
	if err != nil {
		return fmt.Errorf("%q is not a size such as 10Gi", text)
	}
	*q = quantity(parsed.Value())
	return nil
}

func parseHistory(arguments []string) (*historySettings, error) {
	s := &historySettings{maxSize: 8 << 30, logSize: 8 << 20}
	flags := flag.NewFlagSet("server "+historyCommand, flag.ContinueOnError)
	flags.StringVar(&s.options.Address, "address", ":9446", "Address of the API for the server")
	flags.StringVar(&s.options.ProbeAddress, "probe-address", ":8081", "Address of /healthz and /metrics, without TLS")
	flags.StringVar(&s.options.CertificateFile, "tls-cert-file", "", "PEM file with the certificate, reloaded when it changes")
	flags.StringVar(&s.options.KeyFile, "tls-key-file", "", "PEM file with the key of the certificate")
	flags.StringVar(&s.directory, "directory", "", "Directory in which records are stored")
	flags.StringVar(&s.bucket.Location, "bucket", "", "Bucket in which records are stored instead, as s3://bucket/prefix; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY have its keys, AWS_CA_BUNDLE a private CA in PEM")
	flags.StringVar(&s.bucket.Endpoint, "s3-endpoint", "https://s3.amazonaws.com", "URL of the S3 server with the bucket")
	flags.StringVar(&s.bucket.Region, "s3-region", "", "Region of the bucket; default: the S3 server is asked")
	flags.DurationVar(&s.options.Retention.MaxAge, "max-age", 30*24*time.Hour, "How long records are kept after their job has finished; 0 has no limit")
	flags.Var(&s.maxSize, "max-size", "Size of all records, such as 10Gi: beyond it, the oldest are deleted; 0 has no limit")
	flags.Var(&s.logSize, "log-size", "How much of each job's log is kept, before compression: the newest lines")
	flags.StringVar(&s.options.SpoolDirectory, "spool-directory", "/run/trireme/spool/jobs", "Directory for the logs of running jobs, emptied at the start")
	flags.DurationVar(&s.options.Settle, "settle", 5*time.Second, "How long after the end of a job its events are read")
	flags.StringVar(&s.reportsURL, "reports-url", "", "URL of the operator's port for reports, to record metrics over time; default: they are not recorded")
	flags.StringVar(&s.reportsDirectory, "reports-directory", "/run/trireme/reports", "Directory with the token and the CA (ca.crt) for that port, reloaded when they change")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unknown argument %q: server %s only takes flags; see --help", flags.Arg(0), historyCommand)
	}
	s.options.Retention.MaxBytes, s.options.LogBytes = int64(s.maxSize), int64(s.logSize)
	return s, s.check()
}

func (s *historySettings) check() error {
	switch {
	case (s.directory == "") == (s.bucket.Location == ""):
		return fmt.Errorf("either --directory or --bucket is required")
	case s.options.CertificateFile == "" || s.options.KeyFile == "":
		return fmt.Errorf("--tls-cert-file and --tls-key-file are required")
	case s.options.Retention.MaxAge < 0 || s.options.Retention.MaxBytes < 0 || s.options.Settle < 0:
		return fmt.Errorf("--max-age, --max-size and --settle must be 0 or greater")
	case s.options.LogBytes < minLogBytes || s.options.LogBytes > maxLogBytes:
		return fmt.Errorf("--log-size must be from %dKi to %dMi", minLogBytes>>10, maxLogBytes>>20)
	}
	return nil
}

// keepHistory runs the component until the context ends.
func keepHistory(ctx context.Context, cluster *rest.Config, s *historySettings, log *slog.Logger) error {
	cluster = rest.CopyConfig(cluster)
	cluster.UserAgent = "trireme-history/" + version
	// Logs of many jobs are followed at a time; the API server has its own limits.
	cluster.QPS, cluster.Burst = -1, -1
	s.options.Log = log
	s.options.Open = func(context.Context) (history.Store, error) { return history.OpenDirectory(s.directory) }
	if s.bucket.Location != "" {
		// The keys of the Secret are variables, as for downloads of jobs.
		s.bucket.Credentials, s.bucket.Authorities = credentials.NewEnvAWS(), os.Getenv("AWS_CA_BUNDLE")
		s.options.Open = func(context.Context) (history.Store, error) { return history.OpenBucket(&s.bucket) }
	}
	if s.reportsURL != "" {
		reports, err := jobreports.New(s.reportsURL, s.reportsDirectory)
		if err != nil {
			return err
		}
		s.options.Reports = reports
	}
	log.Info("keeping the history of jobs", "version", version, "maxAge", s.options.Retention.MaxAge.String(), "maxSize", s.maxSize.String())
	return history.Run(ctx, cluster, &s.options)
}
