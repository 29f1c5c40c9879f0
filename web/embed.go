// SPDX-License-Identifier: Apache-2.0

// Package web contains the dashboard's page as it is served: what make web has built.
package web

import (
	"embed"
	"io/fs"
)

// Without make web, the folder contains only a .gitignore.
//
//go:embed all:dist
var dist embed.FS

// Page returns the files of the page, and false if it has not been built.
func Page() (fs.FS, bool) {
	page, err := fs.Sub(dist, "dist/page")
	if err != nil {
		return nil, false
	}
	if _, err := fs.Stat(page, "index.html"); err != nil {
		return nil, false
	}
	return page, true
}
