#!/usr/bin/env bash
# Keeps one open issue for each series whose nights fail: opens it, adds a comment every night, and
# closes it after clean nights. DIR is what `hvdperf nightly watch --issues DIR` has written.
#
#   GH_TOKEN=... GH_REPO=owner/name bash ci/github/rolling_issues.sh DIR
set -euo pipefail
directory=$1

# Prints the number of the open issue with this title, if there is one.
number_of() {
    gh issue list --state open --search "in:title \"$1\"" --json number,title \
        --jq ".[] | select(.title == \"$1\") | .number" | head -n 1
}

for text in "$directory"/open/*.md "$directory"/close/*.md; do
    if [[ ! -e $text ]]; then continue; fi
    title="hvdperf: nights of $(basename "$text" .md) fail"
    number=$(number_of "$title")
    case $text in
        "$directory"/open/*)
            if [[ -n $number ]]; then
                gh issue comment "$number" --body-file "$text"
            else
                gh issue create --title "$title" --body-file "$text"
            fi
            ;;
        *)
            if [[ -n $number ]]; then
                gh issue comment "$number" --body-file "$text"
                gh issue close "$number"
            fi
            ;;
    esac
done
