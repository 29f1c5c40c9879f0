// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/fips140"

	"golang.org/x/crypto/ssh"
)

// algorithms of a connection. In FIPS mode only those that OpenSSH under a FIPS policy
// and Go's fips140=only both accept: the ssh package's own list starts with X25519, and
// its AES-GCM is refused because it chooses nonces itself.
func algorithms() ssh.Config {
	if !fips140.Enabled() {
		return ssh.Config{}
	}
	return ssh.Config{
		KeyExchanges: []string{ssh.KeyExchangeECDHP256},
		Ciphers:      []string{ssh.CipherAES256CTR},
		MACs:         []string{ssh.HMACSHA256ETM},
	}
}
