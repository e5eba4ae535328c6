# The end of a test: `passed` is a number, `failed` an array of texts whose first line is a name. (sourced)

# The failures once more at the end, the first lines of each, so that a truncated log still shows them.
verdict() {
    local text
    for text in "${failed[@]}"; do
        head -n 12 <<< "failed: $text"
    done
    echo "$passed passed, ${#failed[@]} failed"
    [ ${#failed[@]} -eq 0 ] && [ "$passed" -gt 0 ]
}
