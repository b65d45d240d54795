# The verbs live in make.py, for machines that have no make.
demo test wheels mindspore lint bench clean:
	python3 make.py $@
.PHONY: demo test wheels mindspore lint bench clean
