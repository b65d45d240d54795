# The verbs live in make.py, for machines that have no make.
demo check test wheels mindspore lint bench docs dist clean:
	python3 make.py $@
.PHONY: demo check test wheels mindspore lint bench docs dist clean
