// SPDX-License-Identifier: Apache-2.0

// Command dex serves an OIDC issuer with one user and one client, whose data are in memory. It is
// dex's server without the databases of its program, which need a C compiler.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/dexidp/dex/web"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"golang.org/x/crypto/bcrypt"
)

func main() {
	address := flag.String("address", "", "Address to listen on")
	issuer := flag.String("issuer", "", "URL of the issuer")
	certificate := flag.String("tls-cert", "", "File with the certificate")
	key := flag.String("tls-key", "", "File with the private key")
	redirect := flag.String("redirect-url", "", "URL to which the client may redirect")
	user := flag.String("user", "", "Email address of the user; the password is in DEX_PASSWORD, the client's secret in DEX_CLIENT_SECRET")
	validity := flag.Duration("token-validity", time.Hour, "How long a token is valid")
	flag.Parse()

	logger := logrus.New()
	hash, err := bcrypt.GenerateFromPassword([]byte(os.Getenv("DEX_PASSWORD")), bcrypt.DefaultCost)
	if err != nil {
		log.Fatal(err)
	}
	data := memory.New(logger)
	data = storage.WithStaticClients(data, []storage.Client{{ID: "trireme", Name: "Trireme", Secret: os.Getenv("DEX_CLIENT_SECRET"), RedirectURIs: []string{*redirect}}})
	data = storage.WithStaticPasswords(data, []storage.Password{{Email: *user, Hash: hash, Username: *user, UserID: "1"}}, logger)
	data = storage.WithStaticConnectors(data, []storage.Connector{{ID: server.LocalConnector, Type: server.LocalConnector, Name: "Password"}})
	refresh, err := server.NewRefreshTokenPolicy(logger, false, "", "", "")
	if err != nil {
		log.Fatal(err)
	}
	handler, err := server.NewServer(context.Background(), server.Config{
		Issuer: *issuer, Storage: data, SkipApprovalScreen: true, IDTokensValidFor: *validity, RefreshTokenPolicy: refresh,
		Web: server.WebConfig{WebFS: web.FS()}, Logger: logger, PrometheusRegistry: prometheus.NewRegistry(),
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServeTLS(*address, *certificate, *key, handler))
}
