// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"bytes"
	"crypto/tls"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/trireme-mpi/trireme/internal/operator/issuer"
)

// Issued is a certificate that the process issues for itself with the operator's CA. It
// is never stored: the next leader issues its own.
type Issued struct {
	// CA returns the certificate and the key of the CA, in PEM.
	CA    func() (certificate, key []byte, err error)
	Names []string
	Clock clock.PassiveClock

	mutex   sync.Mutex
	ca      []byte
	current *tls.Certificate
	renewal time.Time
}

// Certificate returns the certificate. It is issued again when it is due, or when the CA
// has changed.
func (i *Issued) Certificate() (*tls.Certificate, error) {
	certificate, key, err := i.CA()
	if err != nil {
		return nil, err
	}
	i.mutex.Lock()
	defer i.mutex.Unlock()
	now := i.Clock.Now()
	if i.current != nil && bytes.Equal(i.ca, certificate) && now.Before(i.renewal) {
		return i.current, nil
	}
	authority, err := issuer.Parse(certificate, key)
	if err != nil {
		return nil, err
	}
	pair, private, err := authority.Issue(i.Names, now)
	if err != nil {
		return nil, err
	}
	issued, err := tls.X509KeyPair(pair, private)
	if err != nil {
		return nil, err
	}
	i.ca, i.current, i.renewal = certificate, &issued, authority.RenewalTime(pair, private, i.Names)
	return i.current, nil
}
