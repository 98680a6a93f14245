# Completion of memcfg for bash. Now:      eval "$(memcfg completion bash)"
# From now on: memcfg completion bash > ~/.local/share/bash-completion/completions/memcfg

_memcfg() {
    local line=${COMP_LINE:0:COMP_POINT} last=${COMP_WORDS[COMP_CWORD]} words word current stuck program
    read -r -a words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    current=${words[${#words[@]}-1]}
    # bash takes what stands before = and : for words of their own and replaces the last one only
    [[ $last == [=:] ]] && last=""
    [[ $last == "$current"* || $current == *"$last" ]] || last=$current
    stuck=${current%"$last"}
    program=${words[0]/#\~/$HOME}
    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        [[ -n $word ]] && COMPREPLY+=("${word#"$stuck"}")
    done < <("$program" completion reply -- "${words[@]:1}" 2> /dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=./] ]]; then
        compopt -o nospace 2> /dev/null
    fi
}

complete -F _memcfg memcfg
