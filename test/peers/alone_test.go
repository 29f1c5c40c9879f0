// SPDX-License-Identifier: Apache-2.0

//go:build !operator

package peers

// installTrireme is nothing yet: the peers alone.
var installTrireme []string
