#!/bin/bash
# benchtable.sh KEY FILE [DOCUMENT]: print lines of Go benchmarks as a Markdown table. It has a row for each figure, and a column for
# each value of a KEY in the names of the benchmarks, such as services. Of several lines of a name it shows the last;
# benchstat compares them. Times are milliseconds, memory is MiB. With the key "services", the last column is the ratio of the
# largest size to the smallest one. The machine stands above the table. A DOCUMENT gets all this between its lines
# "<!-- NAME: begin -->" and "<!-- NAME: end -->"; the NAME is that of FILE without its ending.
set -euo pipefail
table=$(awk -v key="$1" '
function short(v) { return v >= 100 ? sprintf("%.0f", v) : sprintf("%.3g", v) }
/^(goos|goarch|cpu|machine): / && !($0 in said) { said[$0] = 1; machine = machine (machine ? ", " : "") substr($0, index($0, " ") + 1) }
/^Benchmark/ {
	name = substr($1, 10); sub(/-[0-9]+$/, "", name)
	column = "-"
	if (match(name, "/" key "=[^/]*")) {
		column = substr(name, RSTART + length(key) + 2, RLENGTH - length(key) - 2)
		name = substr(name, 1, RSTART - 1) substr(name, RSTART + RLENGTH)
	}
	if (!(column in seen)) { seen[column] = 1; columns[++width] = column }
	for (i = 3; i < NF; i += 2) {
		value = $i; unit = $(i + 1)
		if (sub(/(^|-)ns(\/op)?$/, "&, ms", unit)) value /= 1e6
		else if (unit !~ /wire/ && sub(/(^|-)B$/, "&, MiB", unit)) value /= 1048576
		row = name " | " unit
		if (!((row, "") in cell)) { cell[row, ""] = 1; rows[++height] = row }
		cell[row, column] = $i == "+Inf" ? "not in time" : short(value)
		number[row, column] = value
	}
}
END {
	printf "%s\n\n", machine
	ratio = key == "services" && width > 1
	printf "| | %s", key; line = "|---|---"
	for (c = 1; c <= width; c++) if (columns[c] != "-") { last = columns[c]; if (first == "") first = last }
	for (c = 1; c <= width; c++) { printf " | %s", columns[c]; line = line "|---:" }
	if (ratio) { printf " | %s / %s", last, first; line = line "|---:" }
	print " |\n" line "|"
	for (r = 1; r <= height; r++) {
		printf "| %s", rows[r]
		for (c = 1; c <= width; c++) printf " | %s", cell[rows[r], columns[c]]
		if (ratio) printf " | %s", number[rows[r], first] && (rows[r], last) in cell ? sprintf("%.2f", number[rows[r], last] / number[rows[r], first]) : ""
		print " |"
	}
}' "$2")
printf '%s\n' "$table"
if [ $# -gt 2 ]; then
	name=$(basename "$2" .txt)
	sed -i -e "/<!-- $name: begin -->/,/<!-- $name: end -->/{//!d}" -e "/<!-- $name: begin -->/r /dev/stdin" "$3" <<<"$table"
fi
