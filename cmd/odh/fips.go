// SPDX-License-Identifier: Apache-2.0

//go:build fips

// A build with this tag panics when it uses an algorithm that FIPS 140-3 does not
// approve. GODEBUG=fips140=on in the environment makes it permissive.
//go:debug fips140=only

package main
