#!/bin/sh
# The study's data. Every sweep does what is missing, so run this again to go on.
#
#     results/study.sh next 9                 the next jobs of PLAN.md that are expected to end within 9 minutes
#     results/study.sh                        all that is left of PLAN.md
#     MORE=--dry-run results/study.sh         what is missing, and how long it will take; also with next
#     results/study.sh PART ...               the earlier study, which PLAN.md describes: rates report penalties variants
#                                             means steps atari pong atari-rates longer
#
# JOBS are programs at once for MinAtar (6: with NVIDIA's MPS, see docs/sweeps.md), ATARI_JOBS for Atari. For the parts of the
# earlier study, MINUTES is the time for each sweep (a cell that is stopped begins anew), MORE is put behind each, and SEEDS
# are those to report with: SEEDS=0-19 adds seeds, and leaves alone those that chose settings. For the plan, RESULTS is the
# folder of its data (results), ONLY=atari does only the sweeps whose names begin so, and TINY=1 tries everything with runs of
# seconds.
set -eu
cd "$(dirname "$0")/.."
[ -d .venv/bin ] && PATH=$PWD/.venv/bin:$PATH

plan() { # the sweeps of PLAN.md in its order, with the speeds known when it was written
    out=${RESULTS:-results}
    games=Breakout-MinAtar,Asterix-MinAtar,SpaceInvaders-MinAtar,Seaquest-MinAtar,Freeway-MinAtar
    atari=pong,breakout,asterix,seaquest,space_invaders
    length="--steps 2e6 --iteration-steps 2000000 --log-steps 50000"
    frames="--preset paper --num-envs 128 --environment-resets iteration --steps 2500000 --iteration-steps 2500000 --log-steps 25000"
    if [ -n "${TINY:-}" ]; then
        length="--preset smoke" frames="--preset smoke" atari=pong,breakout
    fi
    minatar="--sticky 0.1 --max-episode-steps 10000 $length --checkpoints weights --speed ${SPEED:-350000} --jobs ${JOBS:-6}"
    search="$out/study-search --envs $games --seeds 10000-10002 $minatar"
    own="--v-min none --v-max none"
    rates="--learning-rate 3e-5,1e-4,3e-4,1e-3"
    for agent in c51 l51; do
        echo "search-$agent $search --agents $agent $own $rates --double-q false,true"
    done
    echo "search-u51 $search --agents u51 $own $rates --next-distribution signed,rearranged"
    echo "search-s51 $search --agents s51 $own --learning-rate 1e-5,3e-5,1e-4,3e-4 --next-distribution signed,rearranged"
    echo "search-dqn $search --agents dqn $rates --dqn-loss huber,squared"
    echo "search-qr $search --agents qr $rates --quantile-threshold 1,0"
    echo "search-hl_gauss $search --agents hl_gauss $rates --v-min -10 --v-max 10 --allow-variants"
    echo "search-hl_gauss-own $search --agents hl_gauss $rates $own --allow-variants"
    echo "report $out/study-minatar --agents dqn,c51,qr,hl_gauss,s51,u51,l51 --envs $games --seeds 0-19 --max-lanes 10" \
        "--best-of $out/study-search --one-for-all $minatar"
    # Seed 0 of the others is in results/atari.
    emulated="$out/study-atari --envs $atari $frames --checkpoints weights --speed ${ATARI_SPEED:-13500} --jobs ${ATARI_JOBS:-2}"
    echo "atari-seed-0 $emulated --agents l51 --seeds 0"
    echo "atari-seeds-1-2 $emulated --agents dqn,c51,s51,l51 --seeds 1-2"
    echo "atari-seeds-3-4 $emulated --agents dqn,c51,s51,l51 --seeds 3-4"
}

if [ $# -eq 0 ] || [ "$1" = next ]; then
    [ $# -eq 0 ] || minutes="--minutes ${2:?study.sh: next needs a number of minutes}"
    export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"
    plan | python3 results/next_jobs.py ${minutes:-} ${ONLY:+--only "$ONLY"} ${MORE:-}
    exit
fi

FOUR=Breakout-MinAtar,Asterix-MinAtar,SpaceInvaders-MinAtar,Seaquest-MinAtar
AGENTS=dqn,c51,s51,u51,qr
# What the presets had when these runs were made.
plain="--base-distribution uniform --mean-weight 0" ten="--v-min -10 --v-max 10" signed="--next-distribution signed"
limits="--minutes ${MINUTES:-100000} ${MORE:-}"
common="--log-steps 50000 --iteration-steps 2000000 --checkpoints none --jobs ${JOBS:-1} $limits"
# Some runs at once, so that one is made while others learn; one iteration, for environments began anew with each, and 128 of
# them would have done so before an episode of Pong is over. More seeds are made in the same way.
emulated="--preset paper --num-envs 128 --checkpoints weights --environment-resets iteration --jobs ${ATARI_JOBS:-3} $limits"

PARTS="rates report penalties variants means steps atari pong atari-rates longer"

for part in "$@"; do
    known=no
    for one in $PARTS; do [ "$part" = "$one" ] && known=yes; done
    if [ $known = no ]; then
        echo "study.sh: parts are $PARTS; got '$part'" >&2
        exit 2
    fi
done
if [ $# -ne 1 ]; then # each for itself: one that waits for another, or failed, does not keep the rest from being done
    status=0
    for part in "$@"; do
        results/study.sh "$part" || status=$?
        [ $status -lt 128 ] || exit $status # Ctrl-C
    done
    exit $status
fi
case $1 in
rates) # which learning rate, with seeds of its own
    cramerl sweep results/minatar-rates --agents $AGENTS --envs $FOUR --seeds 1000-1002 \
        --learning-rate 3e-5,1e-4,3e-4,1e-3 $plain $ten $signed --steps 1e6 $common
    # S51 is at its best at the lower edge in two games
    cramerl sweep results/minatar-rates --agents s51 --envs SpaceInvaders-MinAtar,Seaquest-MinAtar --seeds 1000-1002 \
        --learning-rate 1e-5,3e-5 $ten $signed --steps 1e6 $common ;;
report) # fresh seeds at the chosen rates
    cramerl sweep results/minatar --agents $AGENTS --envs $FOUR --seeds "${SEEDS:-0-11}" --best-of results/minatar-rates \
        $plain $ten $signed --steps 2e6 $common ;;
penalties) # the paper's sweep of lambda, in both conventions and both normalisations
    cramerl sweep results/minatar-penalties --agents s51 --envs Breakout-MinAtar,Asterix-MinAtar --seeds 2000-2002 \
        --mass-penalty 0,0.25,1,10,20,100 --mass-penalty-scale orthonormal,total --normalisation after,before \
        --learning-rate 1e-4 $ten $signed --steps 1e6 $common ;;
variants) # how far U51 can be taken
    cramerl sweep results/minatar-u51 --agents u51 --envs Breakout-MinAtar,Asterix-MinAtar,Seaquest-MinAtar \
        --seeds 3000-3002 --learning-rate 1e-4,3e-4 --base-distribution uniform,zero --mean-weight 0,0.1,1 $ten --steps 1e6 $common ;;
means) # either Cramér agent with a weight on the mean: rates as for the others, then reported beside them
    cramerl sweep results/minatar-means --agents s51,u51 --envs $FOUR --seeds 4000-4002 --base-distribution zero --mean-weight 0.1 \
        --learning-rate 3e-5,1e-4,3e-4,1e-3 $ten $signed --steps 1e6 $common
    # S51 is at its best at the lower edge in three games
    cramerl sweep results/minatar-means --agents s51 --envs Asterix-MinAtar,SpaceInvaders-MinAtar,Seaquest-MinAtar \
        --seeds 4000-4002 --mean-weight 0.1 --learning-rate 1e-5,3e-5 $ten $signed --steps 1e6 $common
    cramerl sweep results/minatar --agents s51,u51 --envs $FOUR --seeds "${SEEDS:-0-11}" --base-distribution zero \
        --mean-weight 0.1 --best-of results/minatar-means --allow-variants $ten $signed --steps 2e6 $common ;;
steps) # whether other agents gain and lose as much from several steps at once, each as the preset has it
    cramerl sweep results/minatar-steps --agents $AGENTS --envs Breakout-MinAtar,Asterix-MinAtar --seeds 6000-6002 \
        --n-step 1,3 $ten $signed --steps 1e6 $common ;;
atari) # the paper's figure: ten million frames of each game
    cramerl sweep results/atari --agents c51,s51,u51,dqn --envs pong,breakout,asterix,seaquest,space_invaders \
        --seeds "${SEEDS:-0}" --steps 2500000 --iteration-steps 2500000 --log-steps 25000 $emulated ;;
pong) # gymnax's game, as rates, means and report
    pong="--envs Pong-misc --seeds 1000-1002 --learning-rate 3e-5,1e-4,3e-4,1e-3 --steps 5e5 $common"
    hundred="--v-min 0 --v-max 100 $signed"
    weighted="--base-distribution zero --mean-weight 0.1"
    cramerl sweep results/pong-misc-rates --agents $AGENTS $plain $hundred $pong
    cramerl sweep results/pong-misc-means --agents s51,u51 $weighted $hundred $pong
    # S51 and U51 are at their best at the lower edge, S51 at the next one too
    cramerl sweep results/pong-misc-rates --agents s51,u51 $plain $hundred $pong --learning-rate 1e-5,3e-5
    cramerl sweep results/pong-misc-means --agents s51,u51 $weighted $hundred $pong --learning-rate 1e-5,3e-5
    cramerl sweep results/pong-misc-rates --agents s51 $hundred $pong --learning-rate 3e-6,1e-5
    cramerl sweep results/pong-misc-means --agents s51 --mean-weight 0.1 $hundred $pong --learning-rate 3e-6,1e-5
    fresh="--envs Pong-misc --seeds ${SEEDS:-0-9} --steps 2e6 $common"
    cramerl sweep results/pong-misc --agents $AGENTS $plain $hundred --best-of results/pong-misc-rates $fresh
    cramerl sweep results/pong-misc --agents s51,u51 $weighted $hundred --best-of results/pong-misc-means --allow-variants $fresh ;;
atari-rates) # is it the step? S51 and U51 on Pong, each with either's learning rate
    cramerl sweep results/atari-rates --agents s51,u51 --envs pong --seeds "${SEEDS:-0}" --learning-rate 2.5e-5,1e-4 \
        --steps 2500000 --iteration-steps 2500000 --log-steps 25000 $emulated ;;
longer) # more frames of Breakout, with another seed; those of Pong are in results/pong-longer
    cramerl sweep results/atari-longer --agents c51,u51,s51,dqn --envs breakout \
        --seeds "${SEEDS:-1}" --steps 3750000 --iteration-steps 3750000 --log-steps 50000 $emulated ;;
esac
