package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// document is one document of a manifest file, as JSON.
type document struct {
	line int // the line of the file where the document begins; the first line is 1
	json []byte
	text []byte // as the file has it, from the line on; nil: the same as json
}

// source returns the document as the file has it.
func (d document) source() []byte {
	if d.text == nil {
		return d.json
	}
	return d.text
}

// fault is an error in a manifest file.
type fault struct {
	line int
	text string
}

// documents splits a file into documents. A document that is neither YAML nor JSON becomes a fault: the file is damaged
// or half written.
func documents(name string, data []byte) ([]document, []fault) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if strings.HasSuffix(strings.ToLower(name), ".json") {
		return splitJSON(data, 1)
	}
	var good []document
	var bad []fault
	for _, part := range splitYAML(data) {
		d, f := readYAML(part)
		good, bad = append(good, d...), append(bad, f...)
	}
	return good, bad
}

// readYAML turns one YAML document into JSON. It first tries a part that begins like JSON as JSON, because YAML rejects
// tabs as indentation, and because JSON documents may follow each other without separators.
func readYAML(part document) ([]document, []fault) {
	if bytes.HasPrefix(bytes.TrimSpace(part.json), []byte("{")) {
		if all, bad := splitJSON(part.json, part.line); bad == nil {
			return all, nil
		}
	}
	// "Strict" rejects keys that occur twice. It does not reject unknown fields.
	converted, err := yaml.YAMLToJSONStrict(part.json)
	if err != nil {
		return nil, []fault{yamlFault(part, err)}
	}
	text, before := part.json, 0
	for line := range bytes.Lines(part.json) { // those before the first one with content
		if !blank(line) {
			break
		}
		text, before = text[len(line):], before+1
	}
	return []document{{line: part.line + before, json: converted, text: text}}, nil
}

// yamlFault takes the line number from a message such as "yaml: line 3: did not find expected key". The parser reports
// it only in the message.
func yamlFault(part document, err error) fault {
	text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	text = strings.TrimPrefix(text, "yaml: ")
	text = strings.Replace(text, "found character that cannot start any token",
		"found a character that cannot begin anything, such as a tab: YAML is indented with blanks", 1)
	text = strings.TrimSpace(strings.TrimPrefix(text, "unmarshal errors:"))
	rest, ok := strings.CutPrefix(text, "line ")
	if !ok {
		return fault{line: part.line, text: text}
	}
	number, reason, _ := strings.Cut(rest, ":")
	line, err := strconv.Atoi(number)
	if err != nil {
		return fault{line: part.line, text: text}
	}
	reason = strings.TrimSpace(reason)
	if strings.HasPrefix(reason, "did not find expected") {
		line++ // go-yaml counts lines from 0 in messages of its parser, and from 1 in those of its scanner
	}
	last := part.line + bytes.Count(bytes.TrimRight(part.json, " \t\r\n"), []byte("\n"))
	return fault{line: min(part.line+line-1, last), text: reason} // the end of the file belongs to the last line
}

// splitYAML splits at the lines that begin with "---". It skips parts without content.
func splitYAML(data []byte) []document {
	var parts []document
	start, at, line, first := 0, 0, 0, 1
	cut := func(end int) {
		if part := data[start:end]; !blank(part) {
			parts = append(parts, document{line: first, json: part})
		}
	}
	for text := range bytes.Lines(data) {
		line++
		if rest, ok := bytes.CutPrefix(text, []byte("---")); ok && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0) {
			cut(at)
			start, first = at+len("---"), line // the rest of the line belongs to the next document
		}
		at += len(text)
	}
	cut(len(data))
	return parts
}

// blank reports whether a part has only white space, comments and directives.
func blank(part []byte) bool {
	for line := range bytes.Lines(part) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// splitJSON reads consecutive JSON values.
func splitJSON(data []byte, firstLine int) ([]document, []fault) {
	var good []document
	counted := int64(0)
	lineAt := func(offset int64) int { // from the last one on: there may be millions
		offset = max(counted, min(offset, int64(len(data))))
		firstLine, counted = firstLine+bytes.Count(data[counted:offset], []byte("\n")), offset
		return firstLine
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		offset := decoder.InputOffset()
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return good, nil
		}
		if err != nil {
			at := int64(len(data)) // an error without an offset is an unexpected end of the data
			if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
				at = syntax.Offset
			}
			return good, []fault{{line: lineAt(at), text: err.Error()}}
		}
		space := len(data[offset:]) - len(bytes.TrimLeft(data[offset:], " \t\r\n"))
		good = append(good, document{line: lineAt(offset + int64(space)), json: raw})
	}
}

func (f fault) String() string { return fmt.Sprintf("line %d: %s", f.line, f.text) }
