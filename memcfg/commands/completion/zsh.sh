#compdef memcfg
# Completion of memcfg for zsh. Now:       eval "$(memcfg completion zsh)"      (after compinit)
# From now on: memcfg completion zsh > "${fpath[1]}/_memcfg"

_memcfg() {
    local -a open open_said done done_said
    local line word doc
    for line in "${(@f)$("${words[1]/#\~/$HOME}" completion reply -- "${(@)words[2,CURRENT-1]}" "$PREFIX" 2> /dev/null)}"; do
        word=${line%%$'\t'*} doc=${line#*$'\t'}
        [[ -n $word ]] || continue
        [[ -n $doc ]] && doc="$word  -- $doc" || doc=$word
        if [[ $word == *[=./] ]]; then
            open+=("$word") open_said+=("$doc")
        else
            done+=("$word") done_said+=("$doc")
        fi
    done
    (( $#open )) && compadd -Q -S '' -l -d open_said -a open
    (( $#done )) && compadd -Q -l -d done_said -a done
}

if [[ $funcstack[1] == _memcfg ]]; then
    _memcfg "$@"
else
    compdef _memcfg memcfg
fi
