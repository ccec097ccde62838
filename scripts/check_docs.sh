#!/bin/sh
# Every path that a page or a comment names exists. Looks at README, DESIGN, CONTRIBUTING and docs/,
# and at the comments of C++ files. A path is a word that begins with a folder of the repository
# ("fusion/plan/plan.h", "tests/fake_gpu/") or ends like one of its files ("lower.cc"). In pages,
# links between pages are checked too. *, NAME and <op> stand for anything. Fails with file:line.
set -eu
cd "$(dirname "$0")/.."

# Files that the text may name though they are not ours.
foreign="cuda.h cublasLt.h model.py file.py"

if grep -nE '^(<<<<<<<|=======|>>>>>>>)' README.md DESIGN.md CONTRIBUTING.md docs/*.md docs/decisions/*.md; then
  echo "A page holds the marks of a merge"
  exit 1
fi

pages="README.md DESIGN.md CONTRIBUTING.md $(find docs -name '*.md' | LC_ALL=C sort)"
sources=$(find graph models fusion codegen runtime tools tests \
  \( -name '*.cc' -o -name '*.h' -o -name '*.def' -o -name '*.proto' \) | LC_ALL=C sort)

find . \( -path ./.git -o -path ./.venv -o -path ./build -o -name __pycache__ \) -prune -o -print |
  sed 's,^\./,,' |
  awk -v foreign="$foreign" '
# Whether a path of the repository is, or ends with, this one. A trailing slash asks for a folder.
function exists(path, whole,   pattern, known) {
  sub(/\/$/, "", path)
  if (path !~ /[*]/) return path in paths || (!whole && path in endings)
  pattern = path
  gsub(/[.]/, "[.]", pattern)
  gsub(/[*]/, "[^/]*", pattern)
  pattern = (whole ? "^" : "(^|/)") pattern "$"
  for (known in paths) if (known ~ pattern) return 1
  return 0
}
# The folders up to and with ".." resolved: a link is written as seen from its page.
function resolved(page, link,   folder) {
  folder = page
  if (!sub(/\/[^\/]*$/, "", folder)) folder = "."
  while (sub(/^\.\.\//, "", link)) if (!sub(/\/[^\/]*$/, "", folder)) folder = "."
  return folder == "." ? link : folder "/" link
}
function refuse(word) {
  printf "%s:%d: there is no %s\n", FILENAME, FNR, word
  bad++
}
function check(word) {
  gsub(/<[A-Za-z]+>|NAME/, "*", word)
  sub(/[.,;:]+$/, "", word)
  if (word ~ /^(graph|models|fusion|codegen|runtime|tools|tests|python|scripts|bench|docs|cmake)\//) {
    named++
    if (!exists(word, 1)) refuse(word)
  } else if (word ~ /[a-z0-9_*-]\.(h|cc|def|proto|sh|py)$/ && word !~ /^([.~\/]|build\/|gpu-bundle\/)/ &&
             !(word in known_foreign)) {
    named++
    if (!exists(word, 0)) refuse(word)
  }
}
BEGIN {
  n = split(foreign, words, " ")
  for (i = 1; i <= n; i++) known_foreign[words[i]] = 1
}
FILENAME == "-" {
  paths[$0] = 1
  rest = $0
  endings[rest] = 1
  while (sub(/^[^\/]*\//, "", rest)) endings[rest] = 1
  next
}
{
  line = $0
  page = FILENAME ~ /[.]md$/
  if (!page) {  # the comment alone
    if (!match(line, /\/\//)) next
    line = substr(line, RSTART + 2)
  }
  while (page && match(line, /\]\([^)]*\)/)) {
    link = substr(line, RSTART + 2, RLENGTH - 3)
    line = substr(line, 1, RSTART) " " substr(line, RSTART + RLENGTH)
    sub(/#.*/, "", link)
    if (link == "" || link ~ /^https?:/) continue
    named++
    if (!exists(resolved(FILENAME, link), 1)) refuse(link)
  }
  gsub(/https?:[^ )]*/, "", line)
  while (match(line, /[A-Za-z0-9_.*<>~\/-]+/)) {
    word = substr(line, RSTART, RLENGTH)
    line = substr(line, RSTART + RLENGTH)
    check(word)
  }
}
END {
  if (bad) { printf "check_docs: %d paths do not exist\n", bad; exit 1 }
  printf "check_docs: all %d paths that are named exist\n", named
}' - $pages $sources
