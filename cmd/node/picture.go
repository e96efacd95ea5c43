package main

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func isHTML(path string) bool { return strings.EqualFold(filepath.Ext(path), ".html") }

// checkPicture holds the name of a file for a picture against what can be written; "" is none.
func checkPicture(cmd *cobra.Command, flag, file string) error {
	if file == "" || isHTML(file) || strings.EqualFold(filepath.Ext(file), ".svg") {
		return nil
	}
	return usageOf(cmd)("--%s %q: name a file that ends with .svg or .html", flag, file)
}

// pictureFile gives a picture in SVG as the name of its file wants it.
func pictureFile(file, title, svg string) []byte {
	if isHTML(file) {
		svg = "<!doctype html>\n<meta charset=\"utf-8\">\n<title>" + html.EscapeString(title) + "</title>\n" + svg
	}
	return []byte(svg)
}

// writeFile writes what a flag asks for.
func writeFile(flag, file string, content []byte) error {
	if err := os.WriteFile(file, content, 0o666); err != nil {
		return withHint(err, fmt.Sprintf("--%s names a file in a directory that is there and can be written to", flag))
	}
	return nil
}
