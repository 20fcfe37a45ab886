#!/bin/sh
# Which defaults are good ones: supports that find themselves against supports chosen by hand, next distributions that are
# rearranged, Q(lambda). Used as study.sh:
#
#     results/defaults.sh next 9               the next jobs that are expected to end within 9 minutes
#     results/defaults.sh                      all that is left
#     MORE=--dry-run results/defaults.sh       what is missing, and how long it will take; also with next
#     python3 results/defaults_tables.py       the tables of what is there
#
# ONLY=classic,lunarlander does only the parts whose names begin so. JOBS, ATARI_JOBS, RESULTS and TINY are as for study.sh, CPU_JOBS is
# how many runs of LunarLander are played at once, and STEPS the length of MinAtar's.
set -eu
cd "$(dirname "$0")/.."
[ -d .venv/bin ] && PATH=$PWD/.venv/bin:$PATH
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}"

RESULTS=${RESULTS:-results}
DISTRIBUTIONAL=l51,c51,u51,s51,hl_gauss
OWN="--v-min none --v-max none"

length() { # STEPS LOG_STEPS: of a run, in one iteration
    if [ -n "${TINY:-}" ]; then
        echo "--preset smoke --checkpoints none"
    else
        echo "--steps $1 --iteration-steps $1 --log-steps $2 --checkpoints none"
    fi
}

supports() { # NAME FOLDER ENV SETTINGS LOW:HIGH ...: each agent with its own support, then with each of those given
    name=$1 line="$RESULTS/$2 --agents ${AGENTS:-$DISTRIBUTIONAL} --envs $3 --seeds ${SEEDS:-7100-7109} --allow-variants $4"
    shift 4
    echo "$name-own $line $OWN"
    for ends in "$@"; do
        echo "$name-$ends $line --v-min ${ends%:*} --v-max ${ends#*:}"
    done
}

plan() { # what decides most for its time comes first
    minatar="$(length "${STEPS:-500000}" 100000) --speed ${SPEED:-350000} --jobs ${JOBS:-7}"
    for game in Breakout Asterix SpaceInvaders Seaquest Freeway; do
        supports "minatar-$game" defaults-minatar $game-MinAtar "$minatar --next-distribution signed" -10:10 0:30 -1:100
    done
    # What they are compared with, own supports and one step, is among the above.
    for game in SpaceInvaders Asterix Breakout Seaquest Freeway; do
        line="$RESULTS/defaults-minatar --envs $game-MinAtar --seeds ${SEEDS:-7100-7109} --allow-variants $OWN $minatar"
        echo "multistep-$game-3 $line --agents u51,l51 --n-step 3"
        echo "multistep-$game-lambda-1 $line --agents u51,l51 --n-step 3 --q-lambda 1 --q-lambda-greedy 0.7"
        echo "multistep-$game-lambda-0.7 $line --agents u51,l51 --n-step 3 --q-lambda 0.7 --q-lambda-greedy 0.7"
        echo "multistep-$game-lambda-0.9 $line --agents u51,l51 --n-step 5 --q-lambda 0.9 --q-lambda-greedy 0.7"
    done
    for game in Breakout Asterix SpaceInvaders Seaquest Freeway; do
        echo "rearranged-$game $RESULTS/defaults-minatar --envs $game-MinAtar --seeds ${SEEDS:-7100-7109} --allow-variants" \
            "$OWN $minatar --agents s51,u51 --next-distribution rearranged"
    done
    classic="--speed ${CLASSIC_SPEED:-250000} --jobs ${JOBS:-12}"
    supports classic-acrobot defaults-classic Acrobot-v1 "$(length 100000 10000) $classic" -100:0 -50:50 -200:200
    echo "classic-acrobot-dqn $RESULTS/defaults-classic --agents dqn --envs Acrobot-v1 --seeds ${SEEDS:-7100-7109} --allow-variants" \
        "$(length 100000 10000) $classic"
    supports classic-cartpole defaults-classic CartPole-v1 "$(length 100000 10000) $classic" 0:100 -100:100 0:200
    supports classic-mountaincar defaults-classic MountainCar-v0 "$(length 200000 20000) $classic" -100:0 -50:50 -200:200
    supports pong-misc defaults-pong-misc Pong-misc "$(length 500000 50000) --next-distribution signed --speed ${PONG_SPEED:-120000} --jobs 2" 0:100 -100:100 0:30
    supports lunarlander defaults-lunarlander LunarLander-v3 "$(length 200000 20000) --speed 24000 --jobs ${CPU_JOBS:-12}" \
        -100:100 -300:300 -500:500
    # Of three supports the best is chosen by the seeds it is compared on, so what lost to it is compared again on others.
    fresh() ( # AGENT, then as for supports
        AGENTS=$1 SEEDS=7110-7119
        shift
        supports "confirm-$AGENTS-$1" defaults-confirm "$@"
    )
    fresh c51 CartPole-v1 "$(length 100000 10000) $classic" 0:200
    fresh l51 CartPole-v1 "$(length 100000 10000) $classic" 0:200
    fresh s51 Acrobot-v1 "$(length 100000 10000) $classic" -100:0
    fresh s51 CartPole-v1 "$(length 100000 10000) $classic" 0:100
    fresh hl_gauss Acrobot-v1 "$(length 100000 10000) $classic" -200:200
    fresh u51 Breakout-MinAtar "$minatar" -1:100
    fresh l51 Freeway-MinAtar "$minatar" -10:10
    atari="--preset paper --num-envs 128 --environment-resets iteration $(length 1000000 50000) --speed ${ATARI_SPEED:-13500}"
    supports atari defaults-atari pong "$atari --jobs ${ATARI_JOBS:-2}" -10:10 -2:2 -30:30
}

if [ $# -gt 0 ]; then
    [ "$1" = next ] || { echo "defaults.sh: the only word is next, got '$1'" >&2 && exit 2; }
    minutes="--minutes ${2:?defaults.sh: next needs a number of minutes}"
fi
plan | python3 results/next_jobs.py ${minutes:-} ${ONLY:+--only "$ONLY"} ${MORE:-}
